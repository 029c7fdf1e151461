//! The viewer, on a thread of its own: it shares nothing with the answers but the CPU, of which it
//! takes what others leave, and the memory for what is large.

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
    memory::SharedMemory,
    metrics::Metrics,
    pace::{give_way, pace_this_thread},
    panics::{Panics, Task},
    receive::MessageMemory,
    time::SharedClock,
    viewer::{Access, Limits, Viewer},
};

/// For reading files.
const BLOCKING_THREADS: usize = 2;

/// Serves the viewer, and returns where.
///
/// Receiving goes on without it: a port that is taken, by the sidecar of another pod on the host's
/// network or by another container, must not cost payloads.
pub(super) fn start_viewer(
    settings: &Settings,
    shared: Option<Archive>,
    metrics: &Metrics,
    clock: &SharedClock,
    memory: &MessageMemory,
    stop: &CancellationToken,
) -> Option<SocketAddr> {
    let viewer = settings.viewer.as_ref()?;
    let surroundings = Surroundings {
        panics: metrics.panics().clone(),
        clock: SharedClock::clone(clock),
        memory: Arc::new(memory.clone()),
    };
    match try_start(settings, viewer, shared, surroundings, stop.clone()) {
        Ok(bound) => Some(bound),
        Err(error) => {
            let address = viewer.address;
            tracing::error!(%address, %error, "cannot serve the viewer; choose --viewer-address");
            None
        }
    }
}

struct Surroundings {
    panics: Panics,
    clock: SharedClock,
    memory: Arc<dyn SharedMemory>,
}

fn try_start(
    settings: &Settings,
    viewer: &ViewerSettings,
    shared: Option<Archive>,
    Surroundings {
        panics,
        clock,
        memory,
    }: Surroundings,
    stop: CancellationToken,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(viewer.address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let access = Access::new(bound.ip(), Some(&settings.viewer_url), viewer.token.clone());
    let archive = if let Some(archive) = shared {
        archive
    } else {
        let (store, variables) = (&settings.store, &settings.store_variables);
        Archive::open(store, variables, settings.compression).map_err(io::Error::other)?
    };
    let viewer = Viewer::new(archive, access, clock)
        .within(Limits::inside_sidecar(settings.memory_limit))
        .counting(panics.clone())
        .sharing(memory);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let work = move || {
        give_way();
        pace_this_thread();
        let serving = async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            viewer.serve(listener, stop).await
        };
        let served = panics.catch(Task::Viewer, || runtime.block_on(serving));
        if let Ok(Err(error)) = served {
            tracing::error!(%error, "the viewer is not served any more");
        }
    };
    thread::Builder::new()
        .name("viewer".to_owned())
        .spawn(work)?;
    Ok(bound)
}
