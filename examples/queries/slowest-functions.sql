-- Where does the time of my reconciles go?
set variable store = 's3://bucket/prefix';

with reconciles as (
  from read_json(getvariable('store') || '/v1/index/*/*/*.jsonl.zst',
    columns = {
      trace_id: 'varchar', revision: 'bigint', ended_at: 'timestamptz',
      steps: 'struct("function" varchar, duration_ms double)[]'
    })
  -- a reconcile that was split has an entry for each revision; the last one is complete
  qualify row_number() over (partition by trace_id order by coalesce(revision, 0) desc, len(steps) desc, ended_at desc) = 1
), calls as (
  select unnest(steps, max_depth := 2) from reconciles
)
select "function", count(*) as calls,
  round(median(duration_ms), 1) as median_ms,
  round(quantile_cont(duration_ms, 0.95), 1) as p95_ms,
  round(max(duration_ms), 1) as slowest_ms,
  round(sum(duration_ms), 1) as total_ms
from calls
where duration_ms is not null -- an answer that never came took no time that anybody knows
group by all
order by total_ms desc;
