//! Between guest and daemon: what is in the virtqueues, which outlive the daemon. As `vhost-blk-mpath/src/frontend.rs` has it, a
//! daemon that follows a killed one takes no request before the fences that it inherits are over.

use std::collections::BTreeMap;

use super::{Asked, Daemon};
use crate::target::Ctx;

#[derive(Debug, Default)]
pub(crate) struct Frontend {
    /// Requests that are not answered.
    out: BTreeMap<u64, Asked>,
    serves: bool,
    /// Those of them that the last daemon was asked and the next one is not: the guest has given them up.
    given_up: Vec<u64>,
}

impl Frontend {
    /// The guest asks.
    pub(crate) fn ask(&mut self, ctx: &mut Ctx<'_>, daemon: Option<&mut Daemon>, asked: Asked) {
        self.out.insert(asked.id, asked);
        if let Some(daemon) = daemon.filter(|_| self.serves) {
            daemon.ask(ctx, asked);
        }
    }

    pub(crate) fn answered(&mut self, id: u64) {
        self.out.remove(&id);
    }

    /// The daemon is gone. What it was asked is asked again later, or given up.
    pub(crate) fn lose(&mut self, resubmits: bool) {
        if std::mem::take(&mut self.serves) && !resubmits {
            self.given_up = self.out.keys().copied().collect();
        }
    }

    pub(crate) fn serves(&self) -> bool {
        self.serves
    }

    /// The daemon serves: it is asked all there is, except for what is returned, which nobody waits for any more.
    pub(crate) fn serve(&mut self, ctx: &mut Ctx<'_>, daemon: &mut Daemon) -> Vec<Asked> {
        self.serves = true;
        let given_up = std::mem::take(&mut self.given_up);
        let given_up = given_up.iter().filter_map(|id| self.out.remove(id)).collect();
        self.out.values().for_each(|asked| daemon.ask(ctx, *asked));
        given_up
    }
}
