-- Who dropped my resource? Where `dropped_by` is empty no step did: it exists, and none desires it any more.
set variable store = 's3://bucket/prefix';

with reconciles as (
  from read_json(getvariable('store') || '/v1/index/*/*/*.jsonl.zst',
    columns = {
      trace_id: 'varchar', revision: 'bigint', ended_at: 'timestamptz',
      subject: 'struct(kind varchar, name varchar, composition varchar)',
      steps: 'struct(name varchar, "function" varchar)[]',
      dropped: 'struct(resource varchar, step bigint, observed boolean)[]'
    })
  -- a reconcile that was split has an entry for each revision; the last one is complete
  qualify row_number() over (partition by trace_id order by coalesce(revision, 0) desc, len(steps) desc, ended_at desc) = 1
), drops as (
  select subject, steps, unnest(dropped, max_depth := 2) from reconciles
)
select resource, subject.kind, subject.name, subject.composition,
  steps[step + 1].name as dropped_by, steps[step + 1]."function" as "function",
  count(*) as times,
  count(*) filter (observed) as while_it_existed
from drops
group by all
order by while_it_existed desc, times desc, resource;
