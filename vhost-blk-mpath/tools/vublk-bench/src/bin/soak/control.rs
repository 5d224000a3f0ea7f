//! Changes policy and injection through `mpathctl`, as an operator would.

use vublk_bench::control::Control;

/// Every kind of injection. The guest must not notice any of them: none of its requests fails or waits for ever.
const INJECTIONS: [&str; 10] = [
    "--latency 1ms",
    "--latency 20ms --direction response",
    "--latency 5ms --jitter 3ms --distribution normal",
    "--jitter 2ms --distribution exponential --class read --direction response",
    "--jitter 2ms --distribution pareto --class write",
    "--rate 20MiB",
    "--error-rate 2%",
    "--error-rate 2% --direction response --class write",
    "--stall",
    "--stall --direction response",
];

/// Injection changes with every third policy switch, so that the two do not run in step.
const SWITCHES_PER_INJECTION: usize = 3;

/// Goes round the policies and the paths.
#[derive(Debug)]
pub(crate) struct Controller<'a> {
    control: &'a Control,
    policies: &'a [String],
    paths: &'a [String],
    injected: Vec<bool>,
    turns: usize,
    /// Accepted policy switches.
    pub(crate) switches: usize,
    /// Accepted injections.
    pub(crate) injections_set: usize,
    /// Accepted ends of injections.
    pub(crate) injections_cleared: usize,
    /// The commands that were refused, with the messages.
    pub(crate) failures: Vec<String>,
}

impl<'a> Controller<'a> {
    pub(crate) fn new(control: &'a Control, paths: &'a [String], policies: &'a [String]) -> Self {
        Self {
            control,
            policies,
            paths,
            injected: vec![false; paths.len()],
            turns: 0,
            switches: 0,
            injections_set: 0,
            injections_cleared: 0,
            failures: Vec::new(),
        }
    }

    /// The next policy and, now and then, the next injection.
    pub(crate) fn switch(&mut self) {
        self.turns += 1;
        let policy = &self.policies[self.turns % self.policies.len()];
        self.switches += self.ctl(&["policy", "set", policy]);
        if self.turns.is_multiple_of(SWITCHES_PER_INJECTION) {
            self.inject(self.turns / SWITCHES_PER_INJECTION);
        }
    }

    /// Each path in turn: set, then clear.
    fn inject(&mut self, turn: usize) {
        let index = turn % self.paths.len();
        let path = &self.paths[index];
        if self.injected[index] {
            self.injections_cleared += self.ctl(&["inject", "clear", path]);
        } else {
            // Counted over all paths, so that injections and paths do not run in step either.
            let number = self.injections_set;
            let (options, seed) = (INJECTIONS[number % INJECTIONS.len()], number.to_string());
            let words = ["inject", "set", path, "--seed", &seed].into_iter().chain(options.split(' '));
            self.injections_set += self.ctl(&words.collect::<Vec<_>>());
        }
        self.injected[index] = !self.injected[index];
    }

    /// How many commands were accepted: one or none.
    fn ctl(&mut self, words: &[&str]) -> usize {
        let result = self.control.daemon(words);
        self.failures.extend(result.as_ref().err().map(ToString::to_string));
        usize::from(result.is_ok())
    }
}
