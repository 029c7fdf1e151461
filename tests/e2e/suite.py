"""The end-to-end suite: two stacks side by side, each a real Crossplane with a sidecar and all that it talks to.

| stack | store | OTLP | between the sidecar and Jaeger and Tempo | plays |
| --- | --- | --- | --- | --- |
| broad | MinIO | gRPC | the Collector, and a second one that samples | all scenarios, while store and Collector are away for a minute each |
| deep | SeaweedFS | http/protobuf | the Collector, with `batch` and `attributes` | fewer, while the sidecar is killed; then core's speed is measured |

Without a Collector or Jaeger there is only one, `bare`. Everything is asked from outside: Jaeger's and Tempo's query APIs, an S3 client, metrics, and the Collector's files.
"""

import concurrent.futures
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import traceback

import bare
import broad
import deep
import stack
from machine import Ports, Process
from pauses import Pauses
from peers import Peers


def stop_everything(stacks):
    """Also after a failure, when anything may have ended already."""
    for process in list(Process.running):
        process.signal(signal.SIGTERM)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.core.down(), stacks))
    # Nobody needs what they may still have to write.
    for process in list(Process.running):
        process.kill()


def show_logs(work):
    for log in sorted(work.glob("*/*.log")):
        last = [line[:200] for line in log.read_text(errors="replace").splitlines()[-3:]]
        print(f"--- {log}", *last, sep="\n", file=sys.stderr)


def raise_interrupt(*_):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGTERM, raise_interrupt)
    peers = Peers(os.environ["PEERS_FOLDER"], os.environ.get("PEERS_DRIVER"))
    work, ports = pathlib.Path(tempfile.mkdtemp(prefix="spanplane-e2e-")), Ports()
    plays = (broad, deep) if stack.can_trace(peers) else (bare,)
    stacks = [play.make(work, peers, ports) for play in plays]
    failed, watcher = True, Pauses(work)
    for each in stacks:
        each.pauses = watcher
    try:
        watcher.start()
        pool = concurrent.futures.ThreadPoolExecutor()
        runs = [pool.submit(play.play, each) for play, each in zip(plays, stacks)]
        for run in concurrent.futures.as_completed(runs):
            run.result()
        failed = False
    except BaseException:
        traceback.print_exc()
        stack.say_all("stopping everything")
    finally:
        stop_everything(stacks)
        if failed:
            show_logs(work)
            print(f"e2e: FAILED; all logs are in {work}", file=sys.stderr, flush=True)
            # The other stack's thread waits for what is not there any more.
            os._exit(1)
    shutil.rmtree(work)
    for checks in peers.left_out:
        print(f"e2e: LEFT OUT: {checks}")
    stack.say_all("everything agrees" if not peers.left_out else "everything that was checked agrees")


if __name__ == "__main__":
    main()
