//! Values of objects, read as streams: of any size, for downloads.
//!
//! Invariant: memory holds a piece of the object, the window of its compression, and what of that
//! piece belongs to the value.

use bytes::Bytes;

use super::{
    Answers, PayloadsError,
    document::OpenError,
    inside::{Form, ValueGuide, names_of},
    walking::Stop,
};
use crate::{
    archive::Inflating,
    json::{Meaning, NotAString, Unquote, Walk, WalkError},
    pace::breathe,
};

/// A value on its way out of an object.
#[derive(Debug)]
pub struct ValueStream {
    key: String,
    object: Inflating,
    /// `None` once the value is over.
    walk: Option<Walk>,
    guide: ValueGuide,
    unquote: Option<Unquote>,
    /// Comes before everything else.
    first: Option<Bytes>,
}

impl Answers {
    /// The text of an object, as it is stored.
    pub async fn text_stream(&self, key: &str) -> Result<Inflating, PayloadsError> {
        let stored = self.stored(key).await?;
        stored.inflate().map_err(PayloadsError::Fetch)
    }

    /// What stands at a JSON pointer that leads to a payload or into one; `None` if nothing does.
    pub async fn value_stream(
        &self,
        key: &str,
        pointer: &str,
    ) -> Result<Option<ValueStream>, PayloadsError> {
        let Some(names) = names_of(pointer) else {
            return Ok(None);
        };
        let mut stream = ValueStream {
            key: key.to_owned(),
            object: self.text_stream(key).await?,
            walk: Some(Walk::default()),
            guide: ValueGuide::to(names),
            unquote: None,
            first: None,
        };
        // Whether there is anything, and in which form, is known once it begins.
        stream.first = stream.next().await?;
        Ok(stream.guide.form().is_some().then_some(stream))
    }
}

impl ValueStream {
    /// What comes.
    pub fn form(&self) -> Form {
        self.guide.form().unwrap_or(Form::Json)
    }

    /// The next piece, which is never empty; `None` at the end. JSON comes as it stands in the
    /// object, everything else as it was before it was put there.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PayloadsError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        while self.walk.is_some() {
            self.walk_on().await?;
            let piece = self.read()?;
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
        Ok(None)
    }

    /// Walks through one more piece of the object.
    async fn walk_on(&mut self) -> Result<(), PayloadsError> {
        let Some(mut walk) = self.walk.take() else {
            return Ok(());
        };
        let piece = self.object.next().await.map_err(PayloadsError::Fetch)?;
        let walked = match piece {
            Some(piece) => {
                let walked = walk.go_on(&piece, &mut self.guide);
                if walked.is_ok() {
                    self.walk = Some(walk);
                }
                walked
            }
            None => walk.finish(&mut self.guide),
        };
        breathe();
        // Others get their turn, and a deadline its effect.
        tokio::task::yield_now().await;
        match walked {
            Ok(()) | Err(WalkError::Guide(Stop::Done | Stop::TooLarge)) => Ok(()),
            Err(WalkError::Malformed) => Err(self.malformed()),
        }
    }

    /// What the guide found, in its form.
    fn read(&mut self) -> Result<Vec<u8>, PayloadsError> {
        let found = self.guide.take_found();
        let meaning = match self.guide.form() {
            None | Some(Form::Json) => return Ok(found),
            Some(Form::Text) => Meaning::Text,
            Some(Form::Bytes) => Meaning::Bytes,
        };
        let mut unquote = self.unquote.take().unwrap_or_else(|| Unquote::new(meaning));
        let malformed = |NotAString| self.malformed();
        let mut read = unquote.go_on(&found).map_err(malformed)?;
        if self.walk.is_some() {
            self.unquote = Some(unquote);
        } else {
            read.extend(unquote.finish().map_err(malformed)?);
        }
        Ok(read)
    }

    fn malformed(&self) -> PayloadsError {
        PayloadsError::Open {
            key: self.key.clone(),
            source: OpenError::Malformed,
        }
    }
}
