# What the checks of the examples share: the release build, a folder that goes at the end, sidecars.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$(mktemp -d)

finish() {
  status=$?
  for process in $(jobs -pr); do kill "$process" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if [ $status = 0 ]; then rm -rf "$work"; else echo "$0: FAILED; logs are in $work"; fi
}
trap finish EXIT

(cd "$root" && cargo build --locked --release --quiet --bin spanplane --example emit)

# wait_for FILE TEXT PROCESS: until the process has written it.
wait_for() { until grep -qs "$2" "$1"; do kill -0 "$3"; sleep 0.05; done; }

# start_sidecar NAME FLAGS…: logs to NAME.log and prints to NAME.printed; returns once it listens.
start_sidecar() {
  local name=$1
  shift
  # Or what an earlier one wrote there might be taken for its own.
  rm -f "$work/$name.log"
  env -i "$target/release/spanplane" --metrics-address none --viewer-address none --shutdown-timeout 1m "$@" >"$work/$name.printed" 2>"$work/$name.log" &
  sidecar=$!
  wait_for "$work/$name.log" '"listening"' "$sidecar"
}

stop() { kill "$1" && wait "$1"; }
