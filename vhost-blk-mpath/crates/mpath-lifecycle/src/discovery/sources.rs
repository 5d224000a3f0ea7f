//! Decides: a discovery log becomes a list of paths.
//!
//! What the logs of discovery controllers list: other controllers, and paths.

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;
use std::net::SocketAddr;

use monotonic::Instant;
use nvme_tcp::host::{DiscoveryLog, Referral, UnusableEntry, referrals, tcp_address};
use nvme_tcp::wire::{DiscoveryEntry, SubsystemType};

use super::controller::{Controller, Source};
use super::{SessionId, TlsUse, WithPeer};

/// Why an address cannot be connected.
const NO_SCOPE: &str = "a link-local address needs an interface; give the discovery controller with ?host-iface=NAME";

/// Changes of the set of discovery controllers.
#[derive(Debug, Default)]
pub(super) struct ControllerChanges {
    /// Sessions with controllers that no log refers to any more.
    pub(super) ended: Vec<SessionId>,
    /// Some referrals are not followed, because there are too many or their chain is too long.
    pub(super) cut: bool,
}

/// Follows the referrals in all logs: adds and removes controllers accordingly.
pub(super) fn follow<A: Clone + Eq + Display>(
    now: Instant,
    controllers: &mut Vec<Controller<A>>,
    tls: TlsUse,
    with_peer: WithPeer<A>,
) -> ControllerChanges {
    let configured = || controllers.iter().filter(|controller| controller.referred_by.is_none());
    let own: Vec<_> = configured().filter_map(|controller| Some(controller.peer?.address)).collect();
    let (mut wanted, mut changes): (Vec<(Source<A>, A)>, _) = (Vec::new(), ControllerChanges::default());
    for first in configured() {
        let Some((log, _)) = &first.log else { continue };
        // A referred controller is connected in the same way as the referring one.
        let source = |referral: &Referral| {
            let address = with_peer(&first.source.address, referral.address)?;
            Some(Source { address, subnqn: referral.subnqn.clone() })
        };
        let log_of = |referral: &Referral| {
            let source = source(referral)?;
            let known = controllers.iter().find(|controller| controller.source == source)?;
            known.log.as_ref().map(|(log, _)| &**log)
        };
        let found = referrals(log, &own, tls.discovery, log_of);
        changes.cut |= found.cut;
        for source in found.found.iter().filter_map(source) {
            let is_configured = configured().any(|controller| controller.source == source);
            if !is_configured && !wanted.iter().any(|(other, _)| *other == source) {
                wanted.push((source, first.source.address.clone()));
            }
        }
    }
    let is_gone = |controller: &mut Controller<A>| {
        controller.referred_by.is_some() && !wanted.iter().any(|(source, _)| *source == controller.source)
    };
    changes.ended = controllers.extract_if(.., is_gone).filter_map(|controller| controller.session()).collect();
    for (source, by) in wanted {
        if !controllers.iter().any(|controller| controller.source == source) {
            controllers.push(Controller::new(now, source, Some(by)));
        }
    }
    changes
}

/// The records of a log that are paths to `subsystem` or referrals, with their socket addresses.
fn leads<'a>(
    log: &'a DiscoveryLog,
    subsystem: &str,
    tls: TlsUse,
) -> impl Iterator<Item = (&'a DiscoveryEntry, Result<SocketAddr, UnusableEntry>)> {
    let is_of_use = move |entry: &&DiscoveryEntry| match entry.subsystem {
        SubsystemType::NVM => entry.subnqn.as_str() == subsystem,
        kind => kind == SubsystemType::REFERRAL,
    };
    let has_tls = move |entry: &DiscoveryEntry| match entry.subsystem {
        SubsystemType::NVM => tls.paths,
        _ => tls.discovery,
    };
    log.entries.iter().filter(is_of_use).map(move |entry| (entry, tcp_address(entry, has_tls(entry))))
}

/// The number of paths to `subsystem` in a log that cannot be used without a key.
pub(super) fn paths_without_key(log: &DiscoveryLog, subsystem: &str, tls: TlsUse) -> usize {
    let paths = leads(log, subsystem, tls).filter(|(entry, _)| entry.subsystem == SubsystemType::NVM);
    paths.filter(|(_, address)| *address == Err(UnusableEntry::NeedsTls)).count()
}

/// The addresses of `subsystem`, each once, in the order of controllers and records.
pub(super) fn listed<A: Clone + Eq + Hash>(
    controllers: &[Controller<A>],
    subsystem: &str,
    tls: TlsUse,
    with_peer: WithPeer<A>,
) -> Vec<A> {
    // The logs of all controllers may have 100 000 records.
    let (mut listed, mut known) = (Vec::new(), HashSet::new());
    for controller in controllers {
        let log = controller.log.iter().flat_map(|(log, _)| leads(log, subsystem, tls));
        for (_, address) in log.filter(|(entry, _)| entry.subsystem == SubsystemType::NVM) {
            let address = address.ok().and_then(|address| with_peer(&controller.source.address, address));
            let Some(address) = address else { continue };
            if known.insert(address.clone()) {
                listed.push(address);
            }
        }
    }
    listed
}

/// One line for each record of a controller that cannot be used or read.
pub(super) fn useless<A: Display>(
    controller: &Controller<A>,
    subsystem: &str,
    tls: TlsUse,
    with_peer: WithPeer<A>,
) -> Vec<String> {
    let (by, log) = (&controller.source.address, controller.log.iter().map(|(log, _)| log));
    let unreadable = log
        .clone()
        .flat_map(|log| &log.unreadable)
        .map(|(at, error)| format!("{by}: cannot read record {at}: {error}"));
    let unusable = log.flat_map(|log| leads(log, subsystem, tls)).filter_map(|(entry, address)| {
        let (what, setting) = match entry.subsystem {
            SubsystemType::NVM => ("path", "tls-key-file"),
            _ => ("referral", "discovery-tls-key-file"),
        };
        let DiscoveryEntry { traddr, trsvcid, .. } = entry;
        let why = match address {
            Ok(address) if with_peer(by, address).is_some() => return None,
            Ok(_) => NO_SCOPE.to_owned(),
            Err(error @ UnusableEntry::NeedsTls) => format!("{error}; set {setting}"),
            Err(error) => error.to_string(),
        };
        Some(format!("{by}: cannot use the {what} to {traddr} {trsvcid}: {why}"))
    });
    unreadable.chain(unusable).collect()
}
