-- Which XRs flap: fields of desired resources that go from one value to another and back?
set variable store = 's3://bucket/prefix';

with reconciles as (
  from read_json(getvariable('store') || '/v1/index/*/*/*.jsonl.zst',
    columns = {
      trace_id: 'varchar', revision: 'bigint', ended_at: 'timestamptz', steps: 'json[]',
      subject: 'struct(kind varchar, namespace varchar, name varchar, composition varchar)',
      changed: 'boolean',
      flapping: 'struct(resource varchar, field varchar)[]'
    })
  -- a reconcile that was split has an entry for each revision; the last one is complete
  qualify row_number() over (partition by trace_id order by coalesce(revision, 0) desc, len(steps) desc, ended_at desc) = 1
)
select subject.kind as kind, subject.namespace as namespace, subject.name as name, subject.composition as composition,
  count(*) as reconciles,
  count(*) filter (changed) as changed,
  count(*) filter (len(flapping) > 0) as flapped,
  -- a resource without a field comes and goes as a whole
  list_sort(list_distinct(flatten(list([trim(f.resource || ':' || f.field, ':') for f in flapping])))) as fields
from reconciles
group by all
having flapped > 0
order by flapped desc, kind, namespace, name;
