//! Tables in Markdown, printed row by row.

use std::fmt::Display;

/// A title, and the names of the columns: the first ones, and one for each contender.
pub(crate) fn head(title: &str, first: &[&str], contenders: impl IntoIterator<Item: Display>) {
    println!("\n{title}\n");
    let contenders = contenders.into_iter().map(|contender| contender.to_string());
    let columns: Vec<String> = first.iter().map(ToString::to_string).chain(contenders).collect();
    println!("| {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len()));
}

/// The first cells, and one for each contender.
pub(crate) fn row(first: &str, cells: impl IntoIterator<Item = String>) {
    println!("| {first} | {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}
