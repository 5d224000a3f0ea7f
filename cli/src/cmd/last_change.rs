//! Who has changed values, and when, in tables.

use mpath_api::types::LastChange;

use crate::output::{Column, Table, or_dash};

/// Adds the last change of each row, unless no row was changed since the daemon started.
pub(super) fn with_changes(table: Table, changes: &[Option<&LastChange>]) -> Table {
    if changes.iter().all(Option::is_none) {
        return table;
    }
    let cells =
        changes.iter().map(|change| [or_dash(change.map(|change| &change.at)), or_dash(change.map(LastChange::who))]);
    table.with_columns([Column::SpareText("CHANGED(UTC)"), Column::SpareText("BY")], cells)
}

#[cfg(test)]
mod tests {
    use mpath_api::types::{Caller, ChangeSource};

    use super::*;
    use crate::output::{Text, table};

    #[test]
    fn a_table_has_who_changed_its_rows_if_somebody_has() {
        let rows = || table([Column::Text("DISK")], [["disk0".into()], ["disk1".into()]]);
        let shown = |changes: &[Option<&LastChange>]| {
            Text::from(with_changes(rows(), changes)).shown(crate::table::Style::default())
        };
        assert_eq!(shown(&[None, None]), "DISK\ndisk0\ndisk1\n");
        let by = Some(Caller { command: Some("/usr/bin/mpathctl limit clear".into()), ..Caller::new(0, Some(812)) });
        let change = LastChange { at: "2026-11-25T03:12:00.000Z".into(), source: ChangeSource::Operator, by };
        let table = "\
DISK   CHANGED(UTC)              BY
disk0  -                         -
disk1  2026-11-25T03:12:00.000Z  uid 0, pid 812 mpathctl
";
        assert_eq!(shown(&[None, Some(&change)]), table);
    }
}
