//! The steps of an admin connection, and the commands of those that need no parameters.

use crate::wire::{
    AdminCommand, Cns, ControllerConfiguration, FabricsCommand, IDENTIFY_BYTES, PropertyOffset, PropertySize, Sgl, Sqe,
};

/// A step of an admin connection. Timeouts and failed commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `ICReq`, `ICResp` and Connect.
    Connect,
    /// Property Get of CAP.
    Capabilities,
    /// Property Get of VS.
    Version,
    /// Property Set of CC.EN.
    Enable,
    /// Property Get of CSTS until RDY.
    Ready,
    /// Identify Controller.
    IdentifyController,
    /// Identify Controller of the NVM command set.
    CommandLimits,
    /// Set Features, Number of Queues.
    NumberOfQueues,
    /// Identify, active namespaces.
    ActiveNamespaces,
    /// Identify Namespace.
    IdentifyNamespace,
    /// Identify, namespace identification descriptors.
    NamespaceDescriptors,
    /// Set Features, Asynchronous Event Configuration.
    AsyncEventConfiguration,
    /// Get Log Page, Asymmetric Namespace Access.
    AnaLog,
    /// Identify Namespace, for the ANA group.
    AnaGroup,
    /// Get Log Page, Changed Namespace List.
    ChangedNamespaces,
    /// Get Log Page, Discovery.
    DiscoveryLog,
    /// Keep Alive.
    KeepAlive,
    /// Property Set of CC.SHN.
    Shutdown,
    /// Property Get of CSTS until SHST says complete.
    ShutdownStatus,
}

impl Step {
    /// Whether an error status of the step's command leaves the connection alive.
    pub(in crate::host) fn may_fail(self) -> bool {
        matches!(
            self,
            // Not every controller has this page. Without it there are no limits.
            Self::CommandLimits
                // Without events, ANA errors of I/O still lead to reading the ANA log, and the discovery log is read periodically.
                | Self::AsyncEventConfiguration
                // Reading this list only arms the event again. The namespaces are identified again in any case.
                | Self::ChangedNamespaces
                // Its owner reads a log again that has shrunk meanwhile.
                | Self::AnaLog
                // An unusable namespace does not concern the others.
                | Self::IdentifyNamespace
                | Self::NamespaceDescriptors
                | Self::AnaGroup
        )
    }

    /// The command of a step that has no parameters, and the bytes of data that it returns.
    pub(in crate::host) fn command(self) -> Option<(Sqe, u32)> {
        let property_get = |size, offset| (FabricsCommand::PropertyGet { size, offset }.to_sqe(0, Sgl::NONE), 0);
        let set_cc = |value: ControllerConfiguration| {
            let (size, offset) = (PropertySize::Four, PropertyOffset::CC);
            (FabricsCommand::PropertySet { size, offset, value: value.0.into() }.to_sqe(0, Sgl::NONE), 0)
        };
        let identify = |cns| {
            let command = AdminCommand::Identify { cns, nsid: 0, cntid: 0, csi: 0 };
            (command.to_sqe(0, Sgl::NONE), IDENTIFY_BYTES as u32)
        };
        Some(match self {
            Self::Capabilities => property_get(PropertySize::Eight, PropertyOffset::CAP),
            Self::Version => property_get(PropertySize::Four, PropertyOffset::VS),
            Self::Enable => set_cc(ControllerConfiguration::ENABLED),
            Self::Ready | Self::ShutdownStatus => property_get(PropertySize::Four, PropertyOffset::CSTS),
            Self::IdentifyController => identify(Cns::CONTROLLER),
            // CSI 0 is the NVM command set.
            Self::CommandLimits => identify(Cns::CSI_CONTROLLER),
            Self::Shutdown => set_cc(ControllerConfiguration::SHUTDOWN),
            _ => return None,
        })
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "Connect",
            Self::Capabilities => "reading CAP",
            Self::Version => "reading VS",
            Self::Enable => "setting CC.EN",
            Self::Ready => "waiting for CSTS.RDY",
            Self::IdentifyController => "Identify Controller",
            Self::CommandLimits => "reading the limits of commands",
            Self::NumberOfQueues => "setting the number of queues",
            Self::ActiveNamespaces => "listing active namespaces",
            Self::IdentifyNamespace => "Identify Namespace",
            Self::NamespaceDescriptors => "reading namespace identification descriptors",
            Self::AsyncEventConfiguration => "configuring asynchronous events",
            Self::AnaLog => "reading the ANA log",
            Self::AnaGroup => "reading the ANA group of a namespace",
            Self::ChangedNamespaces => "reading the changed namespace list",
            Self::DiscoveryLog => "reading the discovery log",
            Self::KeepAlive => "Keep Alive",
            Self::Shutdown => "setting CC.SHN",
            Self::ShutdownStatus => "waiting for CSTS.SHST",
        })
    }
}
