mod derive;
mod generated;
mod interchange;
mod vectors;

use nvme_tcp::wire::Nqn;

use super::*;

fn nqn(name: &str) -> Nqn {
    name.parse().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}
