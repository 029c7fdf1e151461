//! `spanplane view`: the viewer over any store, also while a sidecar writes to it elsewhere.

use std::{io::Write as _, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use spanplane::{
    archive::{Archive, Compression, StoreUrl, Variables},
    config::{ViewerSettings, check_public_url},
    time::SystemClock,
    viewer::{Access, Token, Viewer},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::cli::StoreArgs;

/// What `view` can be told.
#[derive(Args, Debug)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    store: StoreArgs,

    /// Where to serve. Off loopback it needs --token
    #[arg(long, default_value = "127.0.0.1:8686", value_name = "ADDRESS")]
    address: String,

    /// What has to be known to look, 16 characters or more
    #[arg(
        long,
        env = "SPANPLANE_VIEWER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    token: Option<String>,

    /// Public URL, if it differs from --address; without a path
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

impl ViewArgs {
    /// The settings, or everything that is wrong with them.
    pub(crate) fn validate(self) -> Result<View, Vec<String>> {
        let mut mistakes = Vec::new();
        let (store, _) = self.store.resolve();
        let flags = ["--address", "--token"];
        let served = ViewerSettings::parse(&self.address, self.token.as_deref(), flags)
            .map_err(|wrong| mistakes.extend(wrong))
            .ok();
        if matches!(served, Some(None)) {
            mistakes.push("--address: this names no address".to_owned());
        }
        if let Some(Err(problem)) = self.url.as_deref().map(check_public_url) {
            mistakes.push(format!("--url: {problem}"));
        }
        let variables = Variables::of_process();
        if let Err(wrong) = store.check(&variables) {
            mistakes.extend(wrong);
        }
        match served.flatten() {
            Some(served) if mistakes.is_empty() => Ok(View {
                store,
                address: served.address,
                token: served.token,
                url: self.url,
            }),
            _ => Err(mistakes),
        }
    }
}

/// What `view` does.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) store: StoreUrl,
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<Token>,
    pub(crate) url: Option<String>,
}

impl View {
    /// Serves until a signal comes.
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        if let Some(folder) = self.store.local_folder() {
            // NOTE: a store that is written to would be made; one that is looked at has to be there.
            let is_there = folder.try_exists().unwrap_or(false);
            anyhow::ensure!(
                is_there,
                "there is no {}; name a store with --store, or a sidecar's --data-dir",
                folder.display()
            );
        }
        let listener = TcpListener::bind(self.address).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", self.address))?;
        let address = listener.local_addr()?;
        let mut out = std::io::stdout();
        writeln!(out, "{} is at {}", self.store, url_of(address))?;
        out.flush()?;
        self.serve(listener).await
    }

    /// Serves on this until a signal comes.
    pub(crate) async fn serve(self, listener: TcpListener) -> anyhow::Result<()> {
        let variables = Variables::of_process();
        let archive = Archive::open(&self.store, &variables, Compression::default())?;
        let bound = listener.local_addr()?.ip();
        let access = Access::new(bound, self.url.as_deref(), self.token);
        let viewer = Viewer::new(archive, access, Arc::new(SystemClock));
        let mut signals = crate::Signals::listen()?;
        tokio::select! {
            // Whoever keeps a connection open does not keep the program alive.
            () = signals.one() => Ok(()),
            served = viewer.serve(listener, CancellationToken::new()) => Ok(served?),
        }
    }
}

/// What to type into a browser.
pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("http://{address}/")
}
