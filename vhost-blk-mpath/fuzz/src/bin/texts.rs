//! Texts of files and command lines: configurations, keys, secrets and addresses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mpath_config::{Config, PathAddress};
use nvme_auth::Secret;
use nvme_tls::psk::ConfiguredPsk;

fuzz_target!(|text: &str| {
    let _ = Config::parse(text);
    if let Ok(key) = ConfiguredPsk::parse(text) {
        assert_eq!(key.to_interchange().as_str(), text);
    }
    if let Ok(secret) = Secret::parse(text) {
        assert_eq!(secret.to_text().as_str(), text);
    }
    if let Ok(address) = text.parse::<PathAddress>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});
