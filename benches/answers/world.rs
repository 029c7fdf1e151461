//! The store that questions are asked of, written by the project's own code as a sidecar would
//! over 100 minutes.

use std::{
    collections::HashMap,
    fs,
    io::Write as _,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context as _;
use spanplane::{
    archive::{Archive, IndexJournal, InstanceName, Key, ObjectWriter, Place},
    reconcile::TraceId,
    time::Timestamp,
};

use crate::{
    open,
    reconciles::{Reconcile, Scene},
    templates::{Template, Templates},
};

/// Changes whenever the store would look different.
const MADE: &str = "made-3";
/// From the end of a reconcile to its line: a reconcile is closed when nothing came for a while.
const CLOSING: Duration = Duration::from_secs(2);

pub(crate) fn is_made(folder: &Path) -> anyhow::Result<bool> {
    Ok(folder.join(MADE).try_exists()?)
}

pub(crate) async fn make(folder: &Path) -> anyhow::Result<()> {
    if folder.try_exists()? {
        fs::remove_dir_all(folder)?;
    }
    let scratch = tempfile::tempdir()?;
    let templates = Templates::make(&scratch.path().join("templates")).await?;
    let journal = scratch.path().join("journal");
    fs::create_dir_all(folder)?;
    let mut world = World {
        folder,
        archive: open(folder)?,
        journal: IndexJournal::open(
            std::sync::Arc::new(spanplane::disk::LocalDisk),
            journal,
            InstanceName::new("bench", Timestamp::default()),
        )?,
        templates,
        objects: HashMap::new(),
    };
    let mut now = Timestamp::default();
    for reconcile in Reconcile::all() {
        now = world.reconcile(reconcile).await?;
        world.store_lines(now, false).await?;
    }
    world.store_lines(now, true).await?;
    fs::write(folder.join(MADE), "")?;
    Ok(())
}

struct World<'f> {
    folder: &'f Path,
    archive: Archive,
    journal: IndexJournal,
    templates: Templates,
    /// The last one of each XR.
    objects: HashMap<u32, (Key, u64)>,
}

impl World<'_> {
    /// Stores what a reconcile leaves; returns when its line is written.
    async fn reconcile(&mut self, reconcile: Reconcile) -> anyhow::Result<Timestamp> {
        if reconcile == reconcile.changed_in() {
            let stored = self.store_object(reconcile).await?;
            self.objects.insert(reconcile.xr, stored);
        }
        let (key, bytes) = self.objects.get(&reconcile.xr).context("no object yet")?;
        let original = &template(&self.templates, reconcile)?.line;
        let line = reconcile.line(original, key.to_string(), *bytes);
        let now = line.ended_at + CLOSING;
        self.journal.append(&line, now)?;
        Ok(now)
    }

    async fn store_object(&self, reconcile: Reconcile) -> anyhow::Result<(Key, u64)> {
        let trace_id = TraceId(reconcile.trace_id().into());
        let document = document(reconcile, template(&self.templates, reconcile)?)?;
        let compression = self.archive.compression();
        let mut object = ObjectWriter::new(compression, document.len(), Vec::new())?;
        object.write_all(document.as_bytes())?;
        let object = object.finish()?;
        let bytes = object.len() as u64;
        let started_at = reconcile.started_at();
        let key = Key::of_reconcile(&reconcile.subject(), &trace_id, started_at, compression);
        let body = object.into();
        self.archive
            .put(&key, &trace_id, body, Place::IfFree)
            .await?;
        Ok((key, bytes))
    }

    /// Stores the batches that are due, as if it were then.
    async fn store_lines(&mut self, now: Timestamp, all: bool) -> anyhow::Result<()> {
        self.journal.close_due(now, all)?;
        let ready: Vec<_> = self.journal.ready().cloned().collect();
        for batch in ready {
            let body = fs::read(&batch.path)?;
            self.archive.put_index(&batch.key, body.into()).await?;
            let stored = self.folder.join(batch.key.to_string());
            let stored = fs::File::options().write(true).open(stored)?;
            let since_epoch = Duration::from_nanos(now.as_nanos().unsigned_abs());
            stored.set_modified(UNIX_EPOCH + since_epoch)?;
            self.journal.remove(&batch);
        }
        Ok(())
    }
}

fn template(templates: &Templates, reconcile: Reconcile) -> anyhow::Result<&Template> {
    Ok(match reconcile.scene() {
        Scene::Usual(place) => templates.usual.get(place).context("too few templates")?,
        Scene::Failed => &templates.failed,
        Scene::Dropping => &templates.dropping,
        Scene::Large => &templates.large,
    })
}

/// The document of a reconcile, from that of one like it.
fn document(reconcile: Reconcile, like: &Template) -> anyhow::Result<String> {
    let subject = &like.line.subject;
    let steps = like.document.find(",\"steps\":[");
    let steps = steps.and_then(|start| like.document.get(start..));
    let steps = steps.context("the document has no steps")?;
    let steps = steps
        .replace(&subject.name, &reconcile.name())
        .replace(&subject.uid, &reconcile.uid());
    let own = serde_json::to_string(&reconcile.subject())?;
    let trace_id = reconcile.trace_id();
    Ok(format!(
        "{{\"v\":1,\"trace_id\":\"{trace_id}\",\"subject\":{own}{steps}"
    ))
}
