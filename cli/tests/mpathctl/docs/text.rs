//! Code in documents: blocks, texts in backticks, and the calls of programs in both.

use std::fs;
use std::path::{Path, PathBuf};

/// Files and folders with documents.
const DOCUMENTS: [&str; 4] = ["README.md", "CONTRIBUTING.md", "docs", "vhost-blk-mpath/tools"];

/// Words that stand for what the reader adds.
const LEFT_OUT: [&str; 5] = ["...", "…", "OPTIONS", "COMMAND", "$@"];

/// A block of code, or a text in backticks.
pub(super) struct Code {
    /// The file, and the line of a block.
    pub(super) place: String,
    pub(super) text: String,
    pub(super) is_block: bool,
}

/// A call of a program.
pub(super) struct Call {
    pub(super) place: String,
    /// The program's name and its arguments.
    pub(super) words: Vec<String>,
    /// The reader adds something.
    pub(super) is_open: bool,
}

/// All code in the documents.
pub(super) fn all() -> Vec<Code> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut left: Vec<PathBuf> = DOCUMENTS.map(|name| root.join(name)).into();
    let mut code = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            code.extend(code_of(&name, &fs::read_to_string(&path).unwrap()));
        }
    }
    code
}

fn code_of(name: &str, text: &str) -> Vec<Code> {
    let (mut code, mut prose): (Vec<Code>, String) = (Vec::new(), String::new());
    // An indented line goes on with a paragraph, unless an empty line is between.
    let (mut is_fenced, mut is_code, mut is_prose) = (false, false, false);
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        let begins = if is_fence {
            is_fenced = !is_fenced;
            is_fenced
        } else {
            !is_fenced && !is_code && !is_prose && line.starts_with("    ")
        };
        if begins {
            code.push(Code { place: format!("{name}:{}", at + 1), text: String::new(), is_block: true });
        }
        is_code = is_fenced || !is_fence && (begins || is_code && (line.is_empty() || line.starts_with("    ")));
        is_prose = !is_code && !is_fence && !line.is_empty();
        match code.last_mut() {
            Some(block) if is_code && !is_fence => {
                block.text.extend([if is_fenced { line } else { line.strip_prefix("    ").unwrap_or("") }, "\n"]);
            }
            _ => prose.extend([line, "\n"]),
        }
    }
    // A paragraph with an odd backtick must not shift those after it.
    let spans = prose.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2));
    code.extend(spans.map(|text| Code { place: name.into(), text: text.replace('\n', " "), is_block: false }));
    code
}

impl Code {
    /// The calls of these programs. Where a block has lines with a prompt, all others are output.
    pub(super) fn calls(&self, programs: &[&str]) -> Vec<Call> {
        let joined = self.text.replace("\\\n", " ");
        let prompted: Vec<_> = joined.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
        let lines = if prompted.is_empty() { joined.lines().collect() } else { prompted };
        let commands = lines.into_iter().flat_map(expanded).flat_map(|line| commands(&line));
        commands.filter_map(|words| self.call(&words, programs)).collect()
    }

    fn call(&self, words: &[String], programs: &[&str]) -> Option<Call> {
        // As in `target/release/mpathctl` and `ExecStart=/usr/bin/mpathctl`.
        let program = |word: &String| programs.iter().find(|name| word.rsplit('/').next() == Some(name));
        let at = words.iter().position(|word| program(word).is_some())?;
        let is_prefix = |word: &String| word == "sudo" || word.contains('=');
        let (before, arguments) = (&words[..at], &words[at + 1..]);
        if arguments.is_empty() || !before.iter().all(is_prefix) {
            return None;
        }
        let is_left_out = |word: &&String| LEFT_OUT.contains(&word.as_str());
        let is_open = !self.is_block || arguments.iter().any(|word| is_left_out(&word));
        let given = arguments.iter().filter(|word| !is_left_out(word));
        let given = given.map(|word| word.trim_end_matches("...").trim_end_matches('…').to_owned());
        let words = program(&words[at]).map(ToString::to_string).into_iter().chain(given).collect();
        Some(Call { place: self.place.clone(), words, is_open })
    }
}

/// The lines that a synopsis stands for: with each group in brackets or braces, and with each of its alternatives. A bracket
/// within a word belongs to the word.
fn expanded(line: &str) -> Vec<String> {
    let group = line.match_indices([']', '}']).find_map(|(close, _)| {
        let open = line[..close].rfind(['[', '{'])?;
        (open == 0 || line[..open].ends_with([' ', '[', '{'])).then_some((open, close))
    });
    if let Some((open, close)) = group {
        let (before, after) = (&line[..open], &line[close + 1..]);
        let alternatives = line[open + 1..close].split(" | ");
        return alternatives.flat_map(|words| expanded(&format!("{before}{words}{after}"))).collect();
    }
    let is_choice = |word: &&str| word.contains('|') && !word.starts_with('|');
    match line.split_whitespace().find(is_choice) {
        Some(choice) => choice.split('|').flat_map(|word| expanded(&line.replacen(choice, word, 1))).collect(),
        None => vec![line.into()],
    }
}

/// The words of each command of a shell line. Operators, redirections and comments are left out.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    for word in line.split_whitespace().take_while(|word| !word.starts_with('#')) {
        let is_operator = ["|", "||", "&&", "&"].contains(&word);
        if !is_operator && !word.contains(['<', '>']) {
            let word = word.trim_end_matches(';').trim_matches(['"', '\'']);
            commands.last_mut().expect("there is a command").push(word.to_owned());
        }
        if is_operator || word.ends_with(';') {
            commands.push(Vec::new());
        }
    }
    commands
}

#[test]
fn calls_are_found() {
    let text = "\
Text in `mpathctl path
drain PATH`, and more:
    mpathctl no code

    mpathctl a [--b C | --d]... >file; sudo mpathctl -o x|y \\
        e                     # mpathctl f
    X=1 target/mpathctl tcp://[::1] ... | grep mpathctl && echo mpathctl g

```console
$ mpathctl h &
mpathctl output
```
";
    let code = code_of("a.md", text);
    let calls = code.iter().flat_map(|code| code.calls(&["mpathctl"]));
    let found: Vec<_> = calls.map(|call| (call.place, call.words[1..].join(" "), call.is_open)).collect();
    let expected = [
        ("a.md:5", "a --b C", false),
        ("a.md:5", "-o x e", false),
        ("a.md:5", "a --b C", false),
        ("a.md:5", "-o y e", false),
        ("a.md:5", "a --d", false),
        ("a.md:5", "-o x e", false),
        ("a.md:5", "a --d", false),
        ("a.md:5", "-o y e", false),
        ("a.md:5", "tcp://[::1]", true),
        ("a.md:9", "h", false),
        ("a.md", "path drain PATH", true),
    ];
    assert_eq!(found, expected.map(|(place, words, is_open)| (place.to_owned(), words.to_owned(), is_open)));
}
