//! A program through which people read.
//!
//! Invariant: what is given to one that can't be started is not lost. A shell says so only by the
//! code with which it ends, after it was given something, so that is remembered until somebody must
//! have read it.

use std::{
    env,
    io::{self, Write as _},
    process::{Child, Command, Stdio},
};

/// More than a pipe holds: who was given more has read.
const PIPE_BYTES: usize = 1024 * 1024;
/// A shell ends with these if it can't start what it was told to.
const NOT_STARTED: [i32; 2] = [126, 127];

#[derive(Debug)]
pub(crate) struct Pager {
    child: Child,
    /// What it was given; nothing once it has read.
    given: Option<Vec<u8>>,
}

impl Pager {
    /// `$PAGER`, or less; none if it is set to nothing or can't be started.
    pub(crate) fn start() -> Option<Self> {
        let mut command = match env::var("PAGER") {
            Ok(pager) if pager.trim().is_empty() || pager == "cat" => return None,
            Ok(pager) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &pager]);
                shell
            }
            Err(_) => Command::new("less"),
        };
        if env::var_os("LESS").is_none() {
            // Ends at once if all fits, shows colours, leaves the text on the screen.
            command.env("LESS", "FRX");
        }
        let child = command.stdin(Stdio::piped()).spawn().ok()?;
        Some(Self {
            child,
            given: Some(Vec::new()),
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(stdin) = &mut self.child.stdin else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        stdin.write_all(bytes)?;
        self.given = self.given.take().and_then(|mut given| {
            given.extend_from_slice(bytes);
            (given.len() <= PIPE_BYTES).then_some(given)
        });
        Ok(())
    }

    /// Waits until everything is read; what was given to it, if it never started.
    pub(crate) fn unread(&mut self) -> io::Result<Option<Vec<u8>>> {
        drop(self.child.stdin.take());
        let code = self.child.wait()?.code();
        let has_started = code.is_none_or(|code| !NOT_STARTED.contains(&code));
        Ok(self.given.take().filter(|_| !has_started))
    }
}
