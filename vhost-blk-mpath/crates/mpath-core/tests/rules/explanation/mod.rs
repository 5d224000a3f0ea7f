//! Explanations: one staged situation for each cause, and the same choice as the real one.

mod choice;
mod paths;
mod waits;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, DiskId, Epoch, FlowId, Group, GroupConfig, Io, Next, NextRequest, Op, Opinion,
    Outcome, PathConfig, PathId, PolicyKind, SharedDisk, Tag, WaitCause, Waiting, WhyNot, Window,
};

const MS: Duration = Duration::from_millis(1);
const P0: PathId = PathId(0);
const P1: PathId = PathId(1);
const DISK: DiskId = DiskId(0);

struct Test {
    now: Instant,
    group: Group,
}

impl Test {
    /// Two live optimized paths.
    fn new(policy: PolicyKind) -> Self {
        Self::with(GroupConfig { policy: policy.into(), ..GroupConfig::default() }, &[SharedDisk::default()])
    }

    /// The same, with this window of each path.
    fn with_window(policy: PolicyKind, ios: u32, bytes: u64) -> Self {
        let config = GroupConfig { policy: policy.into(), window: Window { ios, bytes }, ..GroupConfig::default() };
        Self::with(config, &[SharedDisk::default()])
    }

    #[allow(clippy::large_types_passed_by_value)] // once a test
    fn with(config: GroupConfig, disks: &[SharedDisk]) -> Self {
        let now = Instant::now();
        let mut test = Self { now, group: Group::new(now, config, disks) };
        for path in [P0, P1] {
            test.group.add_path(path, PathConfig::default());
            test.up(path, 1, AnaState::Optimized);
        }
        test
    }

    fn up(&mut self, path: PathId, epoch: u64, ana: AnaState) {
        let association =
            Association { epoch: Epoch(epoch), ana: ana.into(), volatile_write_cache: true, queue_depth: 64 };
        self.group.path_up(self.now, path, association);
    }

    fn submit(&mut self, tag: u32, op: Op) -> Vec<Action> {
        self.submit_io(Io { tag: Tag(tag), op, bytes: 4096, disk: DISK, flow: FlowId(0), fua: false })
    }

    fn submit_io(&mut self, io: Io) -> Vec<Action> {
        self.group.submit(self.now, io);
        self.actions()
    }

    fn complete(&mut self, path: PathId, tag: u32, outcome: Outcome) -> Vec<Action> {
        self.group.complete(self.now, path, Tag(tag), outcome);
        self.actions()
    }

    /// The actions without probes, which are answered at once.
    fn actions(&mut self) -> Vec<Action> {
        let mut others = Vec::new();
        while let Some(action) = self.group.poll_action(self.now) {
            match action {
                Action::Probe { path, .. } => self.group.probed(self.now, path, true),
                other => others.push(other),
            }
        }
        others
    }

    /// Completes this many requests, each after `latency` on the path that it takes.
    fn serve(&mut self, op: Op, count: u32, latency: impl Fn(PathId) -> Duration) {
        for _ in 0..count {
            let mut issued = self.submit(900, op);
            while issued.is_empty() {
                self.now = self.group.next_timeout().expect("an injection keeps it");
                issued = self.actions();
            }
            let [Action::Issue { path, .. }] = issued[..] else { panic!("{issued:?}") };
            self.now += latency(path);
            assert_eq!(self.complete(path, 900, Outcome::Success), [ok(900)]);
        }
    }

    /// The explanation of the next read. It changes nothing.
    fn read(&self) -> NextRequest {
        let before = format!("{:?}", self.group);
        let explained = self.group.explain(self.now, DISK).read;
        assert_eq!(format!("{:?}", self.group), before, "explaining has no effect");
        explained
    }

    fn why_not(&self, path: PathId) -> Option<WhyNot> {
        self.read().path(path).expect("the group has the path").why_not
    }

    fn opinion(&self, path: PathId) -> Option<Opinion> {
        self.read().path(path).expect("the group has the path").opinion
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.group.explain(self.now, DISK).waiting
    }

    /// The only cause for which requests wait.
    fn only_wait(&self) -> Waiting {
        let [waiting] = self.waiting()[..] else { panic!("{:?}", self.waiting()) };
        waiting
    }
}

fn issue(path: PathId, tag: u32) -> Action {
    Action::Issue { path, tag: Tag(tag) }
}

fn ok(tag: u32) -> Action {
    Action::Finish { tag: Tag(tag), result: Ok(()) }
}
