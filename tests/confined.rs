//! The program as the chart runs it: as user 65532 without capabilities, with nothing that it may
//! write to but a volume for its data.
//!
//! Invariant: what the machine can't do (mount namespaces take root) is said in a line that begins
//! with `LEFT OUT`, and is no failure.

#![cfg(test)]
#![cfg(target_os = "linux")]

mod support;

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};
use rustix::process::geteuid;
use support::{
    assert_all_payloads_stored, capture, documents, emit_all, folder_archive,
    program::{Place, Running},
};

/// As in config/helm-values.yaml.
const USER: u32 = 65_532;

const NOTHING: Option<&str> = None;

#[test]
fn it_works_as_nobody_with_a_read_only_root_file_system() {
    if !geteuid().is_root() {
        leave_out("only root can make mounts");
        return;
    }
    // NOTE: mounts of its own are those of a thread, and of what that starts.
    let thread = thread::spawn(|| {
        let place = Place::new();
        let program = place.path().join("program");
        match confine(&place, &program) {
            Ok(()) => run(&place, &program),
            Err(error) => leave_out(&error.to_string()),
        }
    });
    thread.join().unwrap();
}

fn leave_out(why: &str) {
    // What is printed is shown only of tests that fail.
    writeln!(io::stderr(), "LEFT OUT: confined: {why}").unwrap();
}

/// Makes everything read-only for this thread but the folder of the socket and the data.
fn confine(place: &Place, program: &Path) -> io::Result<()> {
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    let volume = volume_of(place);
    fs::create_dir(&volume)?;
    fs::write(program, "")?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        NOTHING,
        "/",
        NOTHING,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        NOTHING,
    )?;
    // Where it was built may be nobody else's.
    let built = env!("CARGO_BIN_EXE_spanplane");
    mount(Some(built), program, NOTHING, MsFlags::MS_BIND, NOTHING)?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    for point in mount_points()? {
        let done = mount(NOTHING, &point, NOTHING, read_only, NOTHING);
        // Some are hidden by others, or belong to the kernel.
        if point == Path::new("/") {
            done?;
        }
    }
    let options = format!("mode=0750,uid={USER},gid={USER}");
    mount(
        Some("tmpfs"),
        &volume,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
        Some(options.as_str()),
    )?;
    Ok(())
}

fn volume_of(place: &Place) -> PathBuf {
    place.path().join("run")
}

fn mount_points() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let points = mounts.lines().filter_map(|mount| mount.split(' ').nth(4));
    // NOTE: one with a space in its path is written otherwise, and not found.
    Ok(points.map(PathBuf::from).collect())
}

fn run(place: &Place, program: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for folder in [place.path(), Path::new("/"), Path::new("/etc")] {
            let written = fs::write(folder.join("spanplane-test"), "");
            let kind = written.unwrap_err().kind();
            assert_eq!(
                kind,
                io::ErrorKind::ReadOnlyFilesystem,
                "{}",
                folder.display()
            );
        }
        let store = volume_of(place).join("bucket");
        let mut command = place.command_of(program);
        command
            .uid(USER)
            .gid(USER)
            .current_dir("/")
            .arg("--shutdown-timeout=5m")
            .arg(format!("--store=file://{}", store.display()))
            .env("SPANPLANE_VIEWER_ADDRESS", "127.0.0.1:0");
        let running = Running::wait_for(command.spawn().unwrap()).await;
        let pid = running.child.id().unwrap();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for line in [
            format!("Uid:\t{USER}\t{USER}\t{USER}\t{USER}"),
            format!("Gid:\t{USER}\t{USER}\t{USER}\t{USER}"),
            "Groups:\t ".to_owned(),
            format!("CapEff:\t{:016x}", 0),
        ] {
            let has_it = status.lines().any(|found| found.trim() == line.trim());
            assert!(has_it, "{line:?} is not in {status}");
        }
        let records = capture("dropper");
        emit_all(&mut place.client(), &records).await;
        assert!(running.get("/healthz").await.ends_with("ok\n"));
        let (status, _, logged) = running.terminate().await;
        assert!(status.success(), "{logged}");
        assert!(!logged.contains("Read-only file system"), "{logged}");
        assert_all_payloads_stored(&records, &documents(&folder_archive(&store)).await);
    });
}
