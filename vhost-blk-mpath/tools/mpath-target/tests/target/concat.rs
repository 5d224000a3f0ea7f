//! A target whose authentications generate the keys of TLS.

use mpath_target::{NamespaceConfig, TargetServer};
use nvme_auth::{Concatenation, Secret};
use nvme_tcp::Authentication;
use nvme_tcp::wire::{AdminCommand, CNTLID_ANY, Cns, Nqn, Sgl, Status};

use crate::common::raw::RawQueue;
use crate::common::{NQN, target_config};

#[test]
fn clear_text_serves_the_authentication_of_admin_queues_alone() {
    let mut config = target_config(1, &[NamespaceConfig::memory(1 << 20)]);
    let authentication = mpath_target::authentication(Secret::new(None, &[1; 32]).unwrap(), None);
    config.authentication = Some(Authentication { concatenation: Concatenation::NewTlsPsk, ..authentication });
    let server = TargetServer::start(config).unwrap();
    let (addr, nqn) = (server.addrs()[0], || Nqn::new(NQN).unwrap());
    let mut admin = RawQueue::try_connect(addr, nqn(), 0, CNTLID_ANY).unwrap();
    let identify = AdminCommand::Identify { cns: Cns::CONTROLLER, nsid: 0, cntid: 0, csi: 0 };
    let answer = admin.run(|cid| identify.to_sqe(cid, Sgl::Transport { length: 4096 }), &[]);
    assert_eq!(answer, Err(Status::AUTHENTICATION_REQUIRED.with_dnr()));
    // A host that knows the controller can neither use an I/O queue nor take it from the controller's host.
    let io = RawQueue::try_connect(addr, nqn(), 1, admin.cntlid);
    assert_eq!(io.err(), Some(Status::CONNECT_INVALID_PARAMETERS.with_dnr()));
}
