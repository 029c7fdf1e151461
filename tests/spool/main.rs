//! The spool on a real disk: whatever happens to the process, the disk or the files, what was
//! answered is handed out again, byte for byte, until it is finished.

#![cfg(test)]

mod concurrent;
mod damage;
mod disk;
mod done_files;
mod failing_disk;
mod full;
mod home;
mod model;
mod old_format;
mod opening;
mod removing;
mod strange_files;
mod unreadable;
