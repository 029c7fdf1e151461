// The dashboard and the search form, held against the types of Grafana 10.4 itself. `run` writes both files beside this one.
import type { Dashboard, FieldConfig, FieldConfigSource, Panel, RowPanel } from '@grafana/schema';
import type { PrometheusDataQuery } from '@grafana/schema/dist/esm/raw/composable/prometheus/dataquery/x/PrometheusDataQuery_types.gen';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { FieldConfig as TableFields, Options as TableOptions } from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type { TraceqlFilter } from '@grafana/schema/dist/esm/raw/composable/tempo/dataquery/x/TempoDataQuery_types.gen';
import type { FieldConfig as SeriesFields, Options as SeriesOptions } from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// As it stands in JSON: an enum is its text, and what has a default may be left out.
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;

type Drawn<Type extends string, Options, Fields> = Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> & {
  type: Type;
  options: Options;
  fieldConfig: Omit<FieldConfigSource, 'defaults'> & { defaults: Omit<FieldConfig, 'custom'> & { custom?: Partial<Fields> } };
  targets: PrometheusDataQuery[];
};

type Drawing =
  | Drawn<'stat', Omit<StatOptions, 'showPercentChange' | 'wideLayout'>, never>
  | Drawn<'table', Omit<TableOptions, 'frameIndex' | 'showTypeIcons'>, TableFields>
  | Drawn<'timeseries', SeriesOptions, SeriesFields>;

export type CheckedDashboard = Json<Omit<Dashboard, 'panels'> & { panels: Array<RowPanel | Drawing> }>;
export type CheckedFilters = Json<TraceqlFilter[]>;
