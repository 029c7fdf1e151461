//! How much of the disk everything may take, from one number.
//!
//! The spool with what waits for the store and the collector, and a store on local disk, share the
//! volume of the data directory. Invariant: unless somebody asked for more, they stay together
//! below `--data-max-bytes`, which is below what the volume holds. A volume that fills up has the
//! pod evicted, and with an `emptyDir` everything in it is gone.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::statvfs;

use super::show_bytes;

const GIB: u64 = 1 << 30;
/// With a store beside the spool; less than the 2 GiB of the `emptyDir` in
/// `config/helm-values.yaml`, whose limit no program can see.
const DEFAULT_WITH_STORE: u64 = 15 * GIB / 8;
/// Without one: 1 GiB for the spool.
const DEFAULT_WITHOUT_STORE: u64 = 15 * GIB / 14;
/// For a store on another volume.
const DEFAULT_STORE: u64 = 2 * GIB;
/// Of 15 parts. One is left for the history and what is set aside.
const SPOOL_PARTS: u64 = 8;
const STORE_PARTS: u64 = 6;
const PARTS: u64 = 15;
/// For each of them.
const MIN_BYTES: u64 = 1024 * 1024;

/// What was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) data: Option<u64>,
    pub(super) spool: Option<u64>,
    /// 0 for no limit.
    pub(super) retention: Option<u64>,
}

/// Where the store is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum StorePlace {
    /// On the data directory's volume.
    Beside,
    /// On another volume of this size, if that is known.
    OtherVolume(Option<u64>),
    Remote,
}

/// What each may take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct DiskLimits {
    pub(super) spool: u64,
    /// Of a store on local disk; none for no limit.
    pub(super) retention: Option<u64>,
    /// They are more than the volume has.
    pub(super) warning: Option<String>,
}

impl StorePlace {
    /// Of a store in this folder, if it is in one.
    pub(super) fn of(folder: Option<PathBuf>, data_dir: &Path) -> Self {
        let Some(folder) = folder else {
            return Self::Remote;
        };
        let device = |path: &Path| Some(fs::metadata(existing(path)?).ok()?.dev());
        if folder.starts_with(data_dir) || device(&folder) == device(data_dir) {
            Self::Beside
        } else {
            Self::OtherVolume(volume_bytes(&folder))
        }
    }
}

/// The size of the volume that a path is on, or will be.
pub(super) fn volume_bytes(path: &Path) -> Option<u64> {
    let volume = statvfs(existing(path)?).ok()?;
    volume.f_blocks.checked_mul(volume.f_frsize)
}

fn existing(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut ancestors = path.ancestors();
    let found = ancestors.find(|ancestor| ancestor.try_exists().unwrap_or(false));
    found.map(Path::to_owned)
}

impl DiskLimits {
    /// The limits, or what is wrong with those asked for, by flag. `volume` is the size of the
    /// data directory's, if that is known.
    pub(super) fn share(
        asked: Asked,
        store: StorePlace,
        volume: Option<u64>,
    ) -> Result<Self, (&'static str, String)> {
        let is_beside = store == StorePlace::Beside;
        let default = if is_beside {
            DEFAULT_WITH_STORE
        } else {
            DEFAULT_WITHOUT_STORE
        };
        // Others may use the volume too.
        let at_most = |volume: Option<u64>| volume.map_or(u64::MAX, |bytes| bytes / 5 * 4);
        let data = asked.data.unwrap_or(default.min(at_most(volume)));
        let parts = |count: u64| data / PARTS * count;
        // A limit that was asked for leaves the rest to the other.
        let rest = |other: u64| data.saturating_sub(other).saturating_sub(parts(1));
        let (spool, retention) = match (store, asked.data) {
            (StorePlace::Remote, _) => (parts(PARTS - 1), None),
            (StorePlace::OtherVolume(size), _) => {
                (parts(PARTS - 1), Some(DEFAULT_STORE.min(at_most(size))))
            }
            (StorePlace::Beside, None) => (parts(SPOOL_PARTS), Some(parts(STORE_PARTS))),
            (StorePlace::Beside, Some(_)) => (
                asked.retention.map_or(parts(SPOOL_PARTS), rest),
                Some(asked.spool.map_or(parts(STORE_PARTS), rest)),
            ),
        };
        let spool = asked.spool.unwrap_or(spool);
        let is_unlimited = asked.retention == Some(0);
        let retention = asked.retention.or(retention).filter(|_| !is_unlimited);
        if asked.spool.is_some_and(|bytes| bytes < MIN_BYTES) {
            let problem = "this is less than 1MiB, too little for one message";
            return Err(("--spool-max-bytes", problem.to_owned()));
        }
        let derived = [
            asked.spool.is_none().then_some(spool),
            asked.retention.is_none().then_some(retention).flatten(),
        ];
        if derived.into_iter().flatten().any(|bytes| bytes < MIN_BYTES) {
            let problem = "this leaves less than 1MiB for the spool or the store";
            return Err(("--data-max-bytes", problem.to_owned()));
        }
        let beside = if is_beside { retention } else { Some(0) };
        let together = beside.map(|bytes| spool.saturating_add(bytes));
        if asked.data.is_some() {
            match together {
                None => {
                    let problem = "0 sets no limit, which contradicts --data-max-bytes; leave out \
                                   one of them";
                    return Err(("--retention-bytes", problem.to_owned()));
                }
                Some(together) if together > data => {
                    let problem = format!(
                        "--spool-max-bytes and --retention-bytes add up to {}, which is more than \
                         {}; leave out one of them",
                        show_bytes(together),
                        show_bytes(data),
                    );
                    return Err(("--data-max-bytes", problem));
                }
                Some(_) => {}
            }
        }
        let warning = volume
            .zip(together)
            .filter(|(volume, together)| together > volume)
            .map(|(volume, together)| {
                format!(
                    "the data directory may grow to {}, but its volume has only {}; set \
                     --data-max-bytes",
                    show_bytes(together),
                    show_bytes(volume)
                )
            });
        Ok(Self {
            spool,
            retention,
            warning,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LARGE: Option<u64> = Some(100 * GIB);

    fn asked(data: Option<u64>, spool: Option<u64>, retention: Option<u64>) -> Asked {
        Asked {
            data,
            spool,
            retention,
        }
    }

    fn share(asked: Asked, store: StorePlace, volume: Option<u64>) -> (u64, Option<u64>) {
        let limits = DiskLimits::share(asked, store, volume).unwrap();
        assert_eq!(limits.warning, None, "{asked:?}");
        (limits.spool, limits.retention)
    }

    #[test]
    fn by_default_everything_fits_the_charts_volume() {
        let (spool, retention) = share(Asked::default(), StorePlace::Beside, LARGE);
        assert_eq!((spool, retention), (GIB, Some(768 * MIB)));
        assert!(spool + retention.unwrap() < 2 * GIB);
        let (spool, retention) = share(Asked::default(), StorePlace::Remote, LARGE);
        // But for what dividing leaves over.
        assert!((GIB - PARTS..=GIB).contains(&spool), "{spool}");
        assert_eq!(retention, None);
    }

    #[test]
    fn a_small_volume_is_never_filled() {
        for volume in [64 * MIB, 500 * MIB, 2 * GIB] {
            for store in [StorePlace::Beside, StorePlace::Remote] {
                let (spool, retention) = share(Asked::default(), store, Some(volume));
                let together = spool + retention.unwrap_or(0);
                assert!(together <= volume / 5 * 4, "{volume}: {together}");
                assert!(
                    together >= volume / 10 * 7 || spool > GIB - PARTS,
                    "{volume}: {together}"
                );
            }
        }
        let other = StorePlace::OtherVolume(Some(GIB));
        let (_, retention) = share(Asked::default(), other, LARGE);
        assert_eq!(retention, Some(GIB / 5 * 4));
    }

    #[test]
    fn one_number_is_enough_for_everything() {
        let ten = asked(Some(10 * GIB), None, None);
        for store in [
            StorePlace::Beside,
            StorePlace::Remote,
            StorePlace::OtherVolume(None),
        ] {
            let (spool, retention) = share(ten, store, LARGE);
            let beside = retention.filter(|_| store == StorePlace::Beside);
            let together = spool + beside.unwrap_or(0);
            assert!(
                together < 10 * GIB && together > 9 * GIB,
                "{store:?}: {together}"
            );
        }
    }

    #[test]
    fn what_is_asked_for_is_what_is_done_and_the_other_gets_the_rest() {
        let beside = StorePlace::Beside;
        let both = asked(None, Some(5 * GIB), Some(7 * GIB));
        assert_eq!(share(both, beside, LARGE), (5 * GIB, Some(7 * GIB)));
        let spool_alone = asked(None, Some(5 * GIB), None);
        assert_eq!(
            share(spool_alone, beside, LARGE),
            (5 * GIB, Some(768 * MIB))
        );
        let unlimited = asked(None, None, Some(0));
        assert_eq!(share(unlimited, beside, LARGE), (GIB, None));
        let of_fifteen = asked(Some(15 * GIB), Some(GIB), None);
        assert_eq!(share(of_fifteen, beside, LARGE), (GIB, Some(13 * GIB)));
        let of_fifteen = asked(Some(15 * GIB), None, Some(GIB));
        assert_eq!(share(of_fifteen, beside, LARGE), (13 * GIB, Some(GIB)));
    }

    #[test]
    fn limits_that_contradict_each_other_are_refused() {
        for (asked, flag) in [
            (asked(None, Some(1), None), "--spool-max-bytes"),
            (asked(Some(MIB), None, None), "--data-max-bytes"),
            (asked(Some(GIB), Some(2 * GIB), None), "--data-max-bytes"),
            (asked(Some(GIB), None, Some(2 * GIB)), "--data-max-bytes"),
            (asked(Some(GIB), None, Some(0)), "--retention-bytes"),
        ] {
            let (named, _) = DiskLimits::share(asked, StorePlace::Beside, LARGE).unwrap_err();
            assert_eq!(named, flag, "{asked:?}");
        }
    }

    #[test]
    fn more_than_the_volume_has_is_done_with_a_warning() {
        let much = asked(None, Some(50 * GIB), Some(60 * GIB));
        let limits = DiskLimits::share(much, StorePlace::Beside, LARGE).unwrap();
        assert!(limits.warning.is_some());
    }

    #[test]
    fn a_store_is_beside_the_spool_if_it_is_on_the_same_volume() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("not/yet/there");
        let place = |path: &str| StorePlace::of(Some(folder.path().join(path)), &data_dir);
        assert_eq!(place("not/yet/there/store"), StorePlace::Beside);
        assert_eq!(place("elsewhere"), StorePlace::Beside);
        assert_eq!(StorePlace::of(None, &data_dir), StorePlace::Remote);
        let other = StorePlace::of(Some("/proc/self".into()), &data_dir);
        assert!(matches!(other, StorePlace::OtherVolume(_)), "{other:?}");
        assert!(volume_bytes(&data_dir).unwrap() > 0);
    }
}
