//! What is written, read and refused below the folder of a store on local disk.

use std::os::unix::fs::symlink;

use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;

use super::*;
use crate::{
    archive::{StoreError, Trouble},
    panics::{Panicked, Panics, Task},
};

/// A store with an object, beside a folder with a secret.
fn store() -> (tempfile::TempDir, LocalStore) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("store/v1/a")).unwrap();
    fs::create_dir_all(folder.path().join("outside")).unwrap();
    fs::write(folder.path().join("store/v1/a/own"), "own").unwrap();
    fs::write(folder.path().join("outside/secret"), "secret").unwrap();
    let store = LocalStore::open(&folder.path().join("store")).unwrap();
    (folder, store)
}

async fn listed(store: &LocalStore, prefix: &str) -> Result<Vec<String>> {
    let listed = store.list(Some(&prefix.into()));
    let mut listed: Vec<_> = listed
        .map_ok(|meta| meta.location.to_string())
        .try_collect()
        .await?;
    listed.sort();
    Ok(listed)
}

fn trouble(error: Error) -> Trouble {
    StoreError::from(error).trouble
}

#[tokio::test]
async fn what_is_put_is_listed_and_read() {
    let (folder, store) = store();
    let location = Path::from("v1/a/b/new");
    store.put(&location, "new".into()).await.unwrap();
    fs::write(folder.path().join("store/v1/a/half#1"), "").unwrap();
    let got = store.get(&location).await.unwrap();
    assert_eq!(got.meta.size, 3);
    assert_eq!(got.bytes().await.unwrap(), "new");
    assert_eq!(
        listed(&store, "v1").await.unwrap(),
        ["v1/a/b/new", "v1/a/own"]
    );
    assert_eq!(listed(&store, "v1/none").await.unwrap(), [""; 0]);
    let one = store
        .list_with_delimiter(Some(&"v1/a".into()))
        .await
        .unwrap();
    assert_eq!(one.common_prefixes, ["v1/a/b".into()]);
    assert_eq!(one.objects.len(), 1);
    let missing = store.get(&"v1/a/none".into()).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })));
    let not_an_object = store.get(&"v1/a".into()).await;
    assert!(matches!(not_an_object, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn more_than_a_batch_is_listed_whole() {
    let (folder, store) = store();
    for number in 0..2_100 {
        let day = folder.path().join(format!("store/v1/days/{}", number % 7));
        fs::create_dir_all(&day).unwrap();
        fs::write(day.join(format!("{number}.json")), "").unwrap();
    }
    assert_eq!(listed(&store, "v1/days").await.unwrap().len(), 2_100);
}

#[tokio::test]
async fn links_out_of_the_store_are_neither_read_nor_listed_nor_written_through() {
    let (folder, store) = store();
    let v1 = folder.path().join("store/v1");
    symlink("../../outside/secret", v1.join("file")).unwrap();
    symlink("../../outside", v1.join("folder")).unwrap();
    symlink(v1.join("a"), v1.join("inside")).unwrap();
    symlink("nowhere", v1.join("broken")).unwrap();
    symlink("/", v1.join("everything")).unwrap();
    for name in [
        "file",
        "folder/secret",
        "inside/own",
        "broken",
        "everything/etc/hostname",
    ] {
        let location = Path::from(format!("v1/{name}"));
        let error = store.get(&location).await.unwrap_err();
        assert_eq!(trouble(error), Trouble::SymbolicLink, "{name}");
    }
    assert_eq!(listed(&store, "v1").await.unwrap(), ["v1/a/own"]);
    let below = listed(&store, "v1/folder").await.unwrap_err();
    assert_eq!(trouble(below), Trouble::SymbolicLink);
    let below = listed(&store, "v1/folder/deeper").await.unwrap_err();
    assert_eq!(trouble(below), Trouble::SymbolicLink);
    let put = store.put(&"v1/folder/new".into(), "x".into()).await;
    assert_eq!(trouble(put.unwrap_err()), Trouble::SymbolicLink);
    let parts = store.put_multipart(&"v1/folder/deeper/new".into()).await;
    assert_eq!(trouble(parts.unwrap_err()), Trouble::SymbolicLink);
    assert_eq!(
        fs::read_dir(folder.path().join("outside")).unwrap().count(),
        1
    );
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_links_lead_nowhere() {
    let (folder, store) = store();
    store.delete(&"v1/a/own".into()).await.unwrap();
    assert_eq!(listed(&store, "v1").await.unwrap(), Vec::<String>::new());
    let again = store.delete(&"v1/a/own".into()).await.unwrap_err();
    assert!(matches!(again, Error::NotFound { .. }), "{again:?}");
    let v1 = folder.path().join("store/v1");
    symlink("../../outside", v1.join("folder")).unwrap();
    symlink("../../outside/secret", v1.join("file")).unwrap();
    let through = store.delete(&"v1/folder/secret".into()).await;
    assert_eq!(trouble(through.unwrap_err()), Trouble::SymbolicLink);
    store.delete(&"v1/file".into()).await.unwrap();
    assert!(folder.path().join("outside/secret").try_exists().unwrap());
}

#[tokio::test]
async fn the_folder_itself_may_be_a_link() {
    let (folder, _) = store();
    let link = folder.path().join("link");
    symlink("store", &link).unwrap();
    let store = LocalStore::open(&link).unwrap();
    assert_eq!(listed(&store, "v1").await.unwrap(), ["v1/a/own"]);
    store.put(&"v1/a/new".into(), "new".into()).await.unwrap();
    let got = store.get(&"v1/a/new".into()).await.unwrap();
    assert_eq!(got.bytes().await.unwrap(), "new");
}

fn error_of(errno: Errno) -> Error {
    Error::Generic {
        store: "file",
        source: Box::new(io::Error::from(errno)),
    }
}

#[tokio::test]
async fn a_file_system_without_hard_links_is_told_from_one_that_denies_access() {
    let (_folder, mut store) = store();
    let location = Path::from("v1/a/new");
    let blamed = async |store: &LocalStore, errno| store.blame(&location, error_of(errno)).await;
    let lacks_links = |error: &Error| matches!(error, Error::NotSupported { .. });

    // Hard links can be made here: that is not what the error is about.
    for errno in [Errno::PERM, Errno::ACCESS, Errno::OPNOTSUPP, Errno::NOSPC] {
        let error = blamed(&store, errno).await;
        assert!(!lacks_links(&error), "{errno:?}: {error:?}");
    }
    store.link = |_, _| Err(Errno::PERM.into());
    let error = blamed(&store, Errno::PERM).await;
    assert!(lacks_links(&error), "{error:?}");
    assert!(error.to_string().contains("no hard links"), "{error}");
    let error = blamed(&store, Errno::ACCESS).await;
    assert!(!lacks_links(&error), "{error:?}");
    assert_eq!(trouble(error), Trouble::AccessDenied);
    // A folder in which nothing can be made says nothing about links.
    let nowhere = Path::from("v1/none/new");
    let error = store.blame(&nowhere, error_of(Errno::PERM)).await;
    assert!(!lacks_links(&error), "{error:?}");
    store.link = |_, _| Err(Errno::ACCESS.into());
    let error = blamed(&store, Errno::PERM).await;
    assert!(!lacks_links(&error), "{error:?}");
}

#[test]
fn what_is_beside_the_objects_is_opened_in_the_store_and_nowhere_else() {
    let (folder, _) = store();
    let lock = Path::from("v1/replace.lock");
    let new = folder.path().join("new");
    open_beside(&new, &lock).unwrap();
    assert!(new.join("v1/replace.lock").is_file());
    open_beside(&new, &lock).unwrap();

    let outside = folder.path().join("outside");
    let linked = folder.path().join("linked");
    fs::create_dir(&linked).unwrap();
    symlink(&outside, linked.join("v1")).unwrap();
    let error = open_beside(&linked, &lock).unwrap_err();
    assert_eq!(trouble(error), Trouble::SymbolicLink);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);

    fs::remove_file(new.join("v1/replace.lock")).unwrap();
    symlink(outside.join("lock"), new.join("v1/replace.lock")).unwrap();
    let error = open_beside(&new, &lock).unwrap_err();
    assert_eq!(trouble(error), Trouble::SymbolicLink);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[tokio::test]
async fn looking_for_hard_links_leaves_nothing_behind() {
    let (folder, store) = store();
    store.blame(&"v1/a/new".into(), error_of(Errno::PERM)).await;
    let left = fs::read_dir(folder.path().join("store/v1/a")).unwrap();
    assert_eq!(left.count(), 1);
}

#[tokio::test]
async fn a_panic_in_work_that_waits_for_the_disk_goes_on_where_it_is_waited_for() {
    let panics = Panics::default();
    let work = blocking(|| -> Result<()> { panic!("in a test") });
    let caught = panics.catch_in(Task::Upload, work).await;
    assert!(matches!(caught, Err(Panicked(Task::Upload))), "{caught:?}");
    assert!(panics.broken().eq([Task::Upload]));
}
