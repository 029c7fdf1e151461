//! How much memory the program may use: the limit of its control group. And how whatever needs much
//! of it at once asks for it.
//!
//! Invariant: the smallest limit on the way up counts; without one there is no limit.

use std::{any::Any, fmt, fs, pin::Pin};

/// Version 1 has a number close to 2⁶³ for "no limit".
const NO_LIMIT: u64 = 1 << 60;

/// Memory that is shared, and that whoever holds something large takes it from.
pub trait SharedMemory: fmt::Debug + Send + Sync {
    /// Waits until a payload of so many bytes may be held as a whole, and processed; `None` if there
    /// is never so much.
    ///
    /// Not for asynchronous code: this blocks the thread.
    fn hold_payload(&self, bytes: usize) -> Option<Held>;

    /// So many bytes, or all that there is if that is less, once it is the caller's turn. Whoever
    /// drops this leaves the line.
    fn hold(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Held> + Send>>;
}

/// Memory that nobody else gets, for as long as this lives.
pub struct Held {
    _taken: Option<Box<dyn Any + Send>>,
}

impl Held {
    /// What was taken for it, and is given back when it is dropped.
    pub fn new(taken: impl Any + Send) -> Self {
        Self {
            _taken: Some(Box::new(taken)),
        }
    }

    /// There is so much that nobody has to know.
    pub const fn untold() -> Self {
        Self { _taken: None }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Held").finish_non_exhaustive()
    }
}

/// Memory without a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl SharedMemory for Unlimited {
    fn hold_payload(&self, _: usize) -> Option<Held> {
        Some(Held::untold())
    }

    fn hold(&self, _: usize) -> Pin<Box<dyn Future<Output = Held> + Send>> {
        Box::pin(std::future::ready(Held::untold()))
    }
}

/// The memory limit of this process in bytes; `None` if there is none.
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    find_limit(&groups, &|path| fs::read_to_string(path).ok())
}

/// Looks where version 2 of control groups has it and where version 1 does. In a container the file
/// system shows the own group as the root, whatever its path is outside.
fn find_limit(groups: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    // Lines of the form `4:memory:/path`, or `0::/path` for version 2.
    let group_of = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let is_it = fields.next()?.split(',').any(|name| name == controller);
            fields.next().filter(|_| is_it)
        })
    };
    let limits_in = |root: &str, group: Option<&str>, file: &str| {
        let mut group = group.unwrap_or("/").trim_end_matches('/');
        let mut limits = Vec::new();
        loop {
            let limit = read(&format!("{root}{group}/{file}"));
            limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
            match group.rsplit_once('/') {
                Some((above, _)) => group = above,
                None => return limits,
            }
        }
    };
    let version_2 = limits_in("/sys/fs/cgroup", group_of(""), "memory.max");
    let version_1 = limits_in(
        "/sys/fs/cgroup/memory",
        group_of("memory"),
        "memory.limit_in_bytes",
    );
    let limits = version_2.into_iter().chain(version_1);
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn limit(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        find_limit(groups, &|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn the_limit_of_a_container_is_found_in_both_versions() {
        let files = [("/sys/fs/cgroup/memory.max", "134217728\n")];
        assert_eq!(limit("0::/\n", &files), Some(128 * MIB));
        // Version 1, without a namespace: the path is the host's.
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n")];
        let groups = "5:memory:/kubepods/pod1/container\n3:cpu,cpuacct:/x\n0::/\n";
        assert_eq!(limit(groups, &files), Some(128 * MIB));
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "67108864\n"),
            ("/sys/fs/cgroup/memory.max", "134217728\n"),
        ];
        assert_eq!(limit("0::/a/b\n", &files), Some(64 * MIB));
    }

    #[test]
    fn without_a_limit_there_is_none() {
        assert_eq!(limit("", &[]), None);
        let files = [("/sys/fs/cgroup/memory.max", "max\n")];
        assert_eq!(limit("0::/\n", &files), None);
        let huge = "9223372036854771712\n";
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", huge)];
        assert_eq!(limit("5:memory:/\n", &files), None);
    }
}
