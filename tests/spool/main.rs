//! The spool on a real disk: whatever happens to the process, the disk or the files, what was
//! answered is handed out again, byte for byte, until it is finished.

#![cfg(test)]

mod concurrent;
mod damage;
mod disk;
mod done_log;
mod failing_disk;
mod full;
mod home;
mod old_format;
mod opening;
mod removing;
mod strange_files;
mod unreadable;
