//! The viewer, on a thread of its own: it shares nothing with the answers but the CPU, of which it
//! takes what others leave.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::Archive,
    config::{Settings, ViewerSettings},
    pace::{give_way, pace_this_thread},
    time::SystemClock,
    viewer::{Access, Viewer},
};

/// For reading files.
const BLOCKING_THREADS: usize = 2;

/// Serves the viewer, and returns where.
///
/// Receiving goes on without it: a port that is taken, by the sidecar of another pod on the host's
/// network or by another container, must not cost payloads.
pub(super) fn start_viewer(
    settings: &Settings,
    archive: &Archive,
    stop: &CancellationToken,
) -> Option<SocketAddr> {
    let viewer = settings.viewer.as_ref()?;
    match try_start(settings, viewer, archive, stop.clone()) {
        Ok(bound) => Some(bound),
        Err(error) => {
            let address = viewer.address;
            tracing::error!(%address, %error, "cannot serve the viewer; choose --viewer-address");
            None
        }
    }
}

fn try_start(
    settings: &Settings,
    viewer: &ViewerSettings,
    archive: &Archive,
    stop: CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(viewer.address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let access = Access::new(bound.ip(), Some(&settings.viewer_url), viewer.token.clone());
    // NOTE: a client of its own. One that is shared would have connections that uploads use
    // driven by this thread, which gives way to everything. What is in memory is only there.
    let own = if settings.store.is_lasting() {
        let (store, variables) = (&settings.store, &settings.store_variables);
        Archive::open(store, variables, settings.compression).map_err(io::Error::other)?
    } else {
        archive.clone()
    };
    let viewer = Viewer::new(own, access, Arc::new(SystemClock));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let work = move || {
        give_way();
        pace_this_thread();
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            viewer.serve(listener, stop).await
        });
        if let Err(error) = served {
            tracing::error!(%error, "the viewer is not served any more");
        }
    };
    thread::Builder::new()
        .name("viewer".to_owned())
        .spawn(work)?;
    Ok(bound)
}
