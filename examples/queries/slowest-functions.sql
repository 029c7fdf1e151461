-- Where does the time of my reconciles go?
set variable store = 's3://bucket/prefix';

with calls as (
  select unnest(steps, max_depth := 2)
  from read_json(getvariable('store') || '/v1/index/*/*/*.jsonl.zst',
    columns = {steps: 'struct("function" varchar, duration_ms double)[]'})
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
