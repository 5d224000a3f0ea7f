//! Parameters of policies and schedulers.

use mpath_api::types::Parameter;

use crate::output::{Column, Table, table};

/// Parses the value of `--param`.
pub(super) fn parse(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.into(), value.into()))
}

/// The names of parameters, in one cell.
pub(super) fn names(params: &[Parameter]) -> String {
    let names: Vec<&str> = params.iter().map(|param| &*param.name).collect();
    if names.is_empty() { "-".into() } else { names.join(",") }
}

/// A table of parameters.
pub(super) fn all(params: &[Parameter]) -> Table {
    let columns = [
        Column::Text("PARAMETER"),
        Column::Text("VALUE"),
        Column::Text("DEFAULT"),
        Column::Text("UNIT"),
        Column::Text("RANGE"),
        Column::Long("WHAT IT DOES"),
    ];
    let row = |param: &Parameter| {
        let Parameter { name, value, default, range, unit, description } = param.clone();
        [name, value, default, unit, range, description]
    };
    table(columns, params.iter().map(row))
}
