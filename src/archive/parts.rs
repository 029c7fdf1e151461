//! Beginning uploads in parts, with as much about each object as the store takes.
//!
//! Invariant: as in `writing`, an object is stored even where the store refuses what is sent with
//! it, and one answer that could mean anything costs other objects nothing. Stores that hear of what
//! is sent with an object only at the end of an upload have the upload begun anew with less.

use std::collections::HashMap;

use object_store::{Error, MultipartUpload, ObjectStore as _, PutMultipartOptions, path::Path};

use super::{
    Archive, StoreError,
    failure::{is_about_attributes, may_be_about_attributes},
    writing::{About, Extent},
};

/// Far more uploads than there are at once.
const MOST_SUSPECTS: usize = 64;

/// How much to send with objects whose uploads failed at their end, perhaps because of that.
#[derive(Debug, Default)]
pub(super) struct Suspects(HashMap<Path, Extent>);

impl Suspects {
    fn extent(&self, location: &Path) -> Extent {
        self.0.get(location).copied().unwrap_or_default()
    }

    /// The next upload is to send this much; with `None`, it was not about that.
    fn set(&mut self, location: &Path, extent: Option<Extent>) {
        self.0.remove(location);
        if self.0.len() >= MOST_SUSPECTS {
            self.0.clear();
        }
        if let Some(extent) = extent {
            self.0.insert(location.clone(), extent);
        }
    }
}

impl Archive {
    /// Begins an upload with all that is to be said about an object, or with less if the store
    /// refuses that; tells how much it takes.
    pub(super) async fn begin_parts(
        &self,
        location: &Path,
        about: &About,
    ) -> Result<(Extent, Box<dyn MultipartUpload>), StoreError> {
        let suspected = self.with_taken(|taken| taken.suspects.extent(location));
        let first = self.extent().max(suspected);
        let mut extent = first;
        let mut refused = None;
        loop {
            match self.begin_parts_once(location, about, extent).await {
                Err(error)
                    if may_be_about_attributes(&error, false)
                        && let Some(fewer) = self.fewer(about, extent) =>
                {
                    refused.get_or_insert(error);
                    extent = fewer;
                }
                Ok(upload) => {
                    if let Some(error) = &refused
                        && (is_about_attributes(error)
                            || self.refuses_again(location, about, first).await)
                    {
                        self.send_less(extent, error);
                    }
                    return Ok((extent, upload));
                }
                // What it said about all that was to be sent says most.
                Err(error) => return Err(StoreError::of_write(refused.unwrap_or(error))),
            }
        }
    }

    /// An upload that sent this much can only be tried again from its beginning.
    pub(super) fn parts_failed(
        &self,
        location: &Path,
        about: &About,
        extent: Extent,
        error: &Error,
    ) {
        let fewer = self.fewer(about, extent);
        if let Some(fewer) = fewer.filter(|_| is_about_attributes(error)) {
            self.send_less(fewer, error);
        }
        let suspected = fewer.filter(|_| may_be_about_attributes(error, false));
        self.with_taken(|taken| taken.suspects.set(location, suspected));
    }

    pub(super) fn parts_stored(&self, location: &Path) {
        self.with_taken(|taken| taken.suspects.set(location, None));
    }

    async fn begin_parts_once(
        &self,
        location: &Path,
        about: &About,
        extent: Extent,
    ) -> Result<Box<dyn MultipartUpload>, Error> {
        let options = PutMultipartOptions {
            attributes: self.attributes(about, extent),
            ..PutMultipartOptions::default()
        };
        let client = &self.store.client;
        client.put_multipart_opts(location, options).await
    }

    async fn refuses_again(&self, location: &Path, about: &About, extent: Extent) -> bool {
        match self.begin_parts_once(location, about, extent).await {
            Ok(mut upload) => {
                // What can't be taken back now goes with the bucket's rule for unfinished uploads.
                if let Err(error) = upload.abort().await {
                    tracing::debug!(%error, "cannot abort an upload");
                }
                false
            }
            Err(error) => may_be_about_attributes(&error, false),
        }
    }

    /// The next that sends less than this.
    fn fewer(&self, about: &About, extent: Extent) -> Option<Extent> {
        let sent = self.attributes(about, extent);
        let mut fewer = Extent::ALL.into_iter().filter(|fewer| *fewer > extent);
        fewer.find(|fewer| self.attributes(about, *fewer) != sent)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;
    use crate::archive::Compression;

    fn answer(code: &str) -> Error {
        Error::Generic {
            store: "Azure",
            source: format!(
                "Server returned non-2xx status code: 400 Bad Request: <?xml \
                 version=\"1.0\"?><Error><Code>{code}</Code></Error>"
            )
            .into(),
        }
    }

    #[tokio::test]
    async fn an_upload_that_fails_at_its_end_is_begun_anew_with_less() {
        let archive = Archive::over(Arc::new(InMemory::new()), Compression::None);
        let about = About::content("application/json");
        let (here, elsewhere) = (Path::from("here"), Path::from("elsewhere"));
        let begin = async |at: &Path| archive.begin_parts(at, &about).await.unwrap().0;
        assert_eq!(begin(&here).await, Extent::Everything);
        let refusal = answer("InvalidInput");
        archive.parts_failed(&here, &about, Extent::Everything, &refusal);
        // There is no metadata that could be left out.
        assert_eq!(begin(&here).await, Extent::Nothing);
        assert_eq!(begin(&elsewhere).await, Extent::Everything);
        // That was not it.
        archive.parts_failed(&here, &about, Extent::Nothing, &refusal);
        assert_eq!(begin(&here).await, Extent::Everything);
        // A store that says what it is about is believed.
        let named = answer("InvalidMetadata");
        archive.parts_failed(&here, &about, Extent::Everything, &named);
        assert_eq!(begin(&elsewhere).await, Extent::Nothing);
    }
}
