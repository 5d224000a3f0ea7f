//! Which discovery controllers a first one leads to, directly or by others.
//!
//! Each of them is visited once, however often it is referred to, so that referrals in a circle end. Those marked as having the
//! same information (EFLAGS bit 0) are followed too: each is there when another one is not.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;

use super::log::DiscoveryLog;
use super::usable::tcp_address;
use crate::wire::{Nqn, SubsystemType};

/// The most referrals in a row.
pub const REFERRAL_DEPTH_MAX: u32 = 8;
/// The most discovery controllers that a first one leads to.
pub const REFERRALS_MAX: usize = 16;

/// A discovery controller that another one refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Referral {
    /// Where it is.
    pub address: SocketAddr,
    /// The well-known discovery NQN, or a unique one.
    pub subnqn: Nqn,
}

/// What a first discovery controller leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Referrals {
    /// Each once, the nearest first.
    pub found: Vec<Referral>,
    /// Some were left out: there are more than [`REFERRALS_MAX`], or further away than [`REFERRAL_DEPTH_MAX`].
    pub cut: bool,
}

/// Follows the referrals from the log of a first discovery controller, through the logs that are `known`. `own` are addresses
/// of that first one besides those that its log gives.
pub fn referrals<'a>(
    first: &'a DiscoveryLog,
    own: &[SocketAddr],
    known: impl Fn(&Referral) -> Option<&'a DiscoveryLog>,
) -> Referrals {
    let mut found = Referrals::default();
    let mut visited: HashSet<(SocketAddr, Nqn)> = own.iter().map(|&address| (address, Nqn::discovery())).collect();
    let mut logs = VecDeque::from([(first, 0)]);
    while let Some((log, depth)) = logs.pop_front() {
        let of_kind = |kind| log.entries.iter().filter(move |entry| entry.subsystem == kind);
        // Ports of the subsystem whose log this is, which has nothing to add under either of its names.
        for entry in of_kind(SubsystemType::CURRENT_DISCOVERY) {
            if let Ok(address) = tcp_address(entry) {
                visited.extend([entry.subnqn.clone(), Nqn::discovery()].map(|nqn| (address, nqn)));
            }
        }
        for entry in of_kind(SubsystemType::REFERRAL) {
            let Ok(address) = tcp_address(entry) else { continue };
            let name = (address, entry.subnqn.clone());
            if visited.contains(&name) {
                continue;
            }
            if depth == REFERRAL_DEPTH_MAX || found.found.len() == REFERRALS_MAX {
                found.cut = true;
                continue;
            }
            visited.insert(name);
            let referral = Referral { address, subnqn: entry.subnqn.clone() };
            if let Some(log) = known(&referral) {
                logs.push_back((log, depth + 1));
            }
            found.found.push(referral);
        }
    }
    found
}
