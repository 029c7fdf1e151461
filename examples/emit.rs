//! Emits recorded messages as Crossplane would: in order, as what happens now, each with a deadline
//! of 100 ms.
//!
//! ```sh
//! spanplane --socket-path /tmp/spanplane/socket &
//! cargo run --example emit -- /tmp/spanplane/socket tests/fixtures/captures/network.jsonl.zst
//! ```

use std::{env, path::PathBuf};

use anyhow::Context as _;
use spanplane::{
    capture::{Replay, read_capture},
    client::{CORE_DEADLINE, InspectorClient},
    time::{Clock as _, SystemClock},
};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let socket = arguments.next().context("usage: emit SOCKET CAPTURE…")?;
    let mut client = InspectorClient::new(socket, CORE_DEADLINE);
    for path in arguments {
        let compressed =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (mut taken, mut refused) = (0, 0);
        let mut replay = Replay::new(SystemClock.now().to_string());
        for record in read_capture(&compressed)? {
            let (wait, message) = replay.next(&record, SystemClock.now());
            tokio::time::sleep(wait).await;
            match client.emit(record.kind, message).await {
                Ok(()) => taken += 1,
                Err(status) => {
                    refused += 1;
                    println!("refused: {status}");
                }
            }
        }
        println!("{}: {taken} taken, {refused} refused", path.display());
    }
    Ok(())
}
