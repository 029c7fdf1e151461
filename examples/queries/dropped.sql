-- Who dropped my resource? Where `dropped_by` is empty no step did: it exists, and none desires it any more.
set variable store = 's3://bucket/prefix';

with drops as (
  select subject, steps, unnest(dropped, max_depth := 2)
  from read_json(getvariable('store') || '/v1/index/*/*/*.jsonl.zst',
    columns = {
      subject: 'struct(kind varchar, name varchar, composition varchar)',
      steps: 'struct(name varchar, "function" varchar)[]',
      dropped: 'struct(resource varchar, step bigint, observed boolean)[]'
    })
)
select resource, subject.kind, subject.name, subject.composition,
  steps[step + 1].name as dropped_by, steps[step + 1]."function" as "function",
  count(*) as times,
  count(*) filter (observed) as while_it_existed
from drops
group by all
order by while_it_existed desc, times desc, resource;
