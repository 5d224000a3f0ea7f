//! `mpathctl top`: the disks of a daemon and their paths, live. [`state`] and [`dialog`] decide, [`draw`] shows, and [`driver`] has the
//! terminal and the connection to the daemon.

mod dialog;
mod draw;
mod driver;
mod figures;
mod history;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use self::driver::run;
