//! A viewer over a store, and somebody who asks it.

use std::{net::IpAddr, sync::Arc};

use futures_util::StreamExt as _;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, redirect::Policy};
use spanplane::{
    answers::Answers,
    archive::{Archive, Query},
    line::Line,
    memory::SharedMemory,
    time::SystemClock,
    viewer::{Access, Limits, Token, Viewer},
};
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::support::{Home, capture};

/// A viewer that listens.
pub(crate) struct Served {
    origin: String,
    client: Client,
    answers: Option<Answers>,
    _serving: Option<AbortOnDropHandle<()>>,
    /// Is there for as long as it is looked at.
    home: Option<Home>,
}

/// A page that came.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.text().await.unwrap(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// What people read: no tags, one blank between words.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut is_tag = false;
        for character in self.body.chars() {
            match character {
                '<' => (is_tag, text) = (true, text + " "),
                '>' => is_tag = false,
                _ if !is_tag => text.push(character),
                _ => {}
            }
        }
        let text: Vec<_> = text.split_whitespace().collect();
        text.join(" ")
            .replace("&quot;", "\"")
            .replace("&lt;", "<")
            .replace("&gt;", ">")
    }

    /// Where its links lead on this site.
    pub(crate) fn links(&self) -> Vec<String> {
        let behind = self.body.split("href=\"").skip(1);
        let addresses = behind.filter_map(|rest| rest.split('"').next());
        let addresses = addresses.filter(|address| address.starts_with('/'));
        addresses
            .map(|address| address.split('#').next().unwrap().replace("&amp;", "&"))
            .collect()
    }
}

impl Served {
    /// Over everything that these captures hold.
    pub(crate) async fn of_captures(names: &[&str]) -> Self {
        let home = Home::new();
        for name in names {
            home.play(&[], &capture(name)).await;
        }
        Self::of_home(home).await
    }

    pub(crate) async fn of_home(home: Home) -> Self {
        let mut served =
            Self::with_access(home.archive(), &|bound| Access::new(bound, None, None)).await;
        served.home = Some(home);
        served
    }

    pub(crate) async fn over(archive: Archive) -> Self {
        Self::with_access(archive, &|bound| Access::new(bound, None, None)).await
    }

    pub(crate) async fn with_token(archive: Archive, token: &str) -> Self {
        let token = Token::new(token.to_owned()).unwrap();
        Self::with_access(archive, &|bound| {
            Access::new(bound, None, Some(token.clone()))
        })
        .await
    }

    pub(crate) async fn within(archive: Archive, limits: Limits) -> Self {
        let access = |bound| Access::new(bound, None, None);
        Self::serve(archive, &access, &|viewer| viewer.within(limits)).await
    }

    /// One whose memory is others', too.
    pub(crate) async fn sharing(archive: Archive, memory: Arc<dyn SharedMemory>) -> Self {
        let access = |bound| Access::new(bound, None, None);
        let sharing = |viewer: Viewer| viewer.sharing(Arc::clone(&memory));
        Self::serve(archive, &access, &sharing).await
    }

    pub(crate) async fn with_access(archive: Archive, access: &dyn Fn(IpAddr) -> Access) -> Self {
        Self::serve(archive, access, &|viewer| viewer).await
    }

    async fn serve(
        archive: Archive,
        access: &dyn Fn(IpAddr) -> Access,
        set: &dyn Fn(Viewer) -> Viewer,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Answers::new(archive.clone());
        let viewer = set(Viewer::new(
            archive,
            access(address.ip()),
            Arc::new(SystemClock),
        ));
        #[expect(
            clippy::disallowed_methods,
            reason = "a server for tests has no stages"
        )]
        let serving = tokio::spawn(async move {
            viewer
                .serve(listener, CancellationToken::new())
                .await
                .unwrap();
        });
        Self {
            answers: Some(answers),
            _serving: Some(AbortOnDropHandle::new(serving)),
            ..Self::at(&address.to_string())
        }
    }

    /// One that somebody else serves.
    pub(crate) fn at(address: &str) -> Self {
        Self {
            origin: format!("http://{address}"),
            client: Client::builder().redirect(Policy::none()).build().unwrap(),
            answers: None,
            _serving: None,
            home: None,
        }
    }

    pub(crate) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.origin))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.ask(Method::GET, path).send().await.unwrap()).await
    }

    /// A page that is there.
    pub(crate) async fn page(&self, path: &str) -> Answer {
        let answer = self.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text());
        answer
    }

    /// All reconciles, oldest first.
    pub(crate) async fn lines(&self) -> Vec<Line> {
        let lines = self.answers.as_ref().unwrap().lines(Query::default());
        let mut lines: Vec<_> = lines.map(Result::unwrap).collect().await;
        lines.reverse();
        lines
    }
}
