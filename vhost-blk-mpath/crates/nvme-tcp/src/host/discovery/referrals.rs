//! Following referrals from a first discovery controller to others, directly or over several logs.
//!
//! Each controller is visited once, so that circular referrals end. Referrals to controllers with the same information (EFLAGS
//! bit 0) are followed too: one of them may be reachable when another is not.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;

use super::address::tcp_address;
use super::log::DiscoveryLog;
use crate::wire::{Nqn, SubsystemType};

/// The longest chain of referrals.
pub const REFERRAL_DEPTH_MAX: u32 = 8;
/// The most discovery controllers that are found from a first one.
pub const REFERRALS_MAX: usize = 16;

/// A discovery controller that another one refers to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Referral {
    /// Its address.
    pub address: SocketAddr,
    /// The well-known discovery NQN, or a unique one.
    pub subnqn: Nqn,
}

/// The discovery controllers found from a first one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Referrals {
    /// Each controller once, those with the fewest referrals before them first.
    pub found: Vec<Referral>,
    /// Some were left out, because there are more than [`REFERRALS_MAX`] or they are further away than [`REFERRAL_DEPTH_MAX`].
    pub cut: bool,
}

/// Follows the referrals from the log of a first discovery controller. `known` returns the log of a referral if it was read.
/// `own` are addresses of the first controller, in addition to those in its log. `has_tls` says whether the host connects to
/// discovery controllers with TLS 1.3.
pub fn referrals<'a>(
    first: &'a DiscoveryLog,
    own: &[SocketAddr],
    has_tls: bool,
    known: impl Fn(&Referral) -> Option<&'a DiscoveryLog>,
) -> Referrals {
    let mut found = Referrals::default();
    let mut visited: HashSet<(SocketAddr, Nqn)> = own.iter().map(|&address| (address, Nqn::discovery())).collect();
    let mut logs = VecDeque::from([(first, 0)]);
    while let Some((log, depth)) = logs.pop_front() {
        let of_kind = |kind| log.entries.iter().filter(move |entry| entry.subsystem == kind);
        // These are ports of the subsystem that has returned this log. It has nothing to add, under its own or the well-known name.
        for entry in of_kind(SubsystemType::CURRENT_DISCOVERY) {
            if let Ok(address) = tcp_address(entry, has_tls) {
                visited.extend([entry.subnqn.clone(), Nqn::discovery()].map(|nqn| (address, nqn)));
            }
        }
        for entry in of_kind(SubsystemType::REFERRAL) {
            let Ok(address) = tcp_address(entry, has_tls) else { continue };
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
