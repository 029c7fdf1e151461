//! Objects, walked through while they are fetched.
//!
//! Invariant: memory holds a few pieces of the object, the window of its compression, and what the
//! walk takes.

use super::{Answers, PayloadsError, document::OpenError};
use crate::{
    archive::{FetchError, Inflating, Key, StoredObject},
    json::{Guide, Walk, WalkError},
    pace::breathe,
};

/// Why a walk ends before the end of the object.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// Everything that was wanted is found.
    #[error("done")]
    Done,
    /// What was wanted takes more than is allowed.
    #[error("too large")]
    TooLarge,
}

impl Answers {
    /// The object at a key of the bucket, as it is stored.
    pub async fn stored(&self, key: &str) -> Result<StoredObject, PayloadsError> {
        let parsed = Key::parse(key).ok_or_else(|| PayloadsError::NotAKey(key.to_owned()))?;
        match self.archive().open_object(&parsed).await {
            Err(FetchError::Store(error)) if error.is_not_found() => {
                let began = parsed.began().map(|(began, _)| began.rfc3339_shortest());
                Err(PayloadsError::Gone {
                    key: key.to_owned(),
                    began: began.unwrap_or_else(|| "an unknown time".to_owned()),
                })
            }
            opened => opened.map_err(PayloadsError::Fetch),
        }
    }

    /// Walks through an object, to its end or until the guide stops.
    pub(super) async fn walk<G: Guide<Error = Stop>>(
        &self,
        key: &str,
        guide: &mut G,
    ) -> Result<(), PayloadsError> {
        let stored = self.stored(key).await?;
        let mut object = stored.inflate().map_err(PayloadsError::Fetch)?;
        match self.walk_through(&mut object, guide).await {
            Err(Ended::Fetch(error)) => Err(PayloadsError::Fetch(error)),
            Err(Ended::Walk(WalkError::Malformed)) => Err(PayloadsError::Open {
                key: key.to_owned(),
                source: OpenError::Malformed,
            }),
            Err(Ended::Walk(WalkError::Guide(Stop::TooLarge))) => Err(PayloadsError::TooLarge {
                key: key.to_owned(),
                limit: self.max_bytes(),
            }),
            Ok(()) | Err(Ended::Walk(WalkError::Guide(Stop::Done))) => Ok(()),
        }
    }

    async fn walk_through<G: Guide<Error = Stop>>(
        &self,
        object: &mut Inflating,
        guide: &mut G,
    ) -> Result<(), Ended> {
        let mut walk = Walk::default();
        while let Some(piece) = object.next().await.map_err(Ended::Fetch)? {
            walk.go_on(&piece, guide).map_err(Ended::Walk)?;
            breathe();
            // A small object may hold a lot: others get their turn, and a deadline its effect.
            tokio::task::yield_now().await;
        }
        walk.finish(guide).map_err(Ended::Walk)
    }
}

enum Ended {
    Fetch(FetchError),
    Walk(WalkError<Stop>),
}
