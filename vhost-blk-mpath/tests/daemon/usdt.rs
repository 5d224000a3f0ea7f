//! The static probes (USDT) of the program are those that `docs/operating/slow-requests.md` lists.

use std::collections::BTreeMap;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/operating/slow-requests.md");

/// Each probe with its number of arguments, as binutils finds them in the program.
fn in_the_program() -> BTreeMap<String, usize> {
    let output = Command::new("readelf").args(["-n", env!("CARGO_BIN_EXE_vhost-blk-mpath")]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let field = |note: &str, name: &str| {
        let value = note.lines().find_map(|line| line.trim().strip_prefix(name));
        value.unwrap_or_else(|| panic!("no {name} in {note}")).trim().to_owned()
    };
    let notes = text.split("NT_STAPSDT").skip(1);
    let probes = notes.map(|note| {
        assert_eq!(field(note, "Provider:"), "vhost_blk_mpath");
        (field(note, "Name:"), field(note, "Arguments:").split_whitespace().count())
    });
    probes.collect()
}

/// Each probe with its number of arguments, as the page lists them: rows of ``| `probe` | argument, argument | when
/// |``.
fn on_the_page() -> BTreeMap<String, usize> {
    let table = PAGE.split("| probe of `vhost_blk_mpath` |").nth(1).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let probes = rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`').to_owned(), cells[2].split(',').count())
    });
    probes.collect()
}

#[test]
fn the_program_has_the_probes_of_the_page_with_as_many_arguments() {
    let probes = in_the_program();
    assert_eq!(probes.len(), 4, "{probes:?}");
    assert_eq!(probes, on_the_page());
    let traced: Vec<_> = PAGE.split("vhost_blk_mpath:").skip(1).map(|rest| rest.split(' ').next().unwrap()).collect();
    assert_eq!(traced.len(), 2, "the example of bpftrace");
    assert!(traced.iter().all(|probe| probes.contains_key(*probe)), "{traced:?}");
}
