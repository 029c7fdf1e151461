-- Which functions fail, how, and for whom?
set variable store = 's3://bucket/prefix';

with reconciles as (
  from read_json(getvariable('store') || '/v1/index/*/*/*.jsonl.zst',
    columns = {
      trace_id: 'varchar', revision: 'bigint', ended_at: 'timestamptz',
      subject: 'struct(kind varchar, name varchar)',
      steps: 'struct(name varchar, "function" varchar, error_type varchar, error varchar, results struct(severity varchar, message varchar)[])[]'
    })
  -- a reconcile that was split has an entry for each revision; the last one is complete
  qualify row_number() over (partition by trace_id order by coalesce(revision, 0) desc, len(steps) desc, ended_at desc) = 1
), calls as (
  select subject, unnest(steps, max_depth := 2) from reconciles
), failures as (
  select *, coalesce(error, list_filter(results, lambda result: result.severity = 'fatal')[1].message) as message
  from calls
  where error_type is not null
    and error_type != 'interrupted' -- by a restart of the sidecar: no failure of the function
)
select "function", name as step, error_type, count(*) as calls,
  list_sort(list(distinct subject.kind || '/' || subject.name)) as whose,
  left(regexp_replace(min(message), '^cannot run Function "[^"]*": rpc error: ', ''), 64) as "for example"
from failures
group by all
order by calls desc, "function", step, error_type;
