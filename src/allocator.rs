//! How much freed memory the allocator of the C library keeps.
//!
//! Left to itself, glibc returns a freed block to the kernel at once only if it is larger than any
//! that was freed before, up to 32 MiB; smaller ones stay with the thread's arena. After a few
//! payloads of 32 MiB every thread that touched one keeps that much. Invariant: a block of
//! 8 MiB or more goes back to the kernel when it is freed.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use libc::{M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, c_int, mallopt};

    /// Usual payloads are smaller; for them, asking the kernel each time would cost CPU time.
    const LARGE_BYTES: c_int = 8 * 1024 * 1024;
    /// Free memory that an arena keeps at its end.
    const KEPT_BYTES: c_int = 16 * 1024 * 1024;

    #[expect(unsafe_code, reason = "there is no safe way to reach these settings")]
    pub(crate) fn return_large_blocks() {
        // SAFETY: both set a number inside the allocator. No other thread runs yet.
        unsafe {
            mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
            mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
        }
    }
}

/// Has large blocks returned to the kernel when they are freed. To be called before any thread starts.
pub(crate) fn return_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::return_large_blocks();
}
