//! The JSON schema of a configuration file, for editors.

use serde_json::{Map, Value, json};
use utoipa::{PartialSchema, ToSchema};

use super::{SAMPLE, uncomment};
use crate::{Config, DiskConfig, LiveSetting, SharerConfig};

/// The schema, made from the types.
fn schema() -> Value {
    let mut all = Vec::new();
    Config::schemas(&mut all);
    let mut parts: Map<_, _> = all.into_iter().map(|(name, schema)| (name, json!(schema))).collect();
    // An editor reads an octal mode as a decimal number.
    let mode = parts.get_mut("SocketMode").expect("the API socket has a mode");
    mode["anyOf"][1]["maximum"] = json!(777);
    let mut schema = json!(Config::schema());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The configuration of vhost-blk-mpath");
    schema["$defs"] = parts.into();
    serde_json::from_str(&schema.to_string().replace("#/components/schemas/", "#/$defs/")).unwrap()
}

#[test]
fn descriptions_say_which_settings_can_be_changed_while_i_o_runs() {
    let schema = json!(DiskConfig::schema());
    for (name, setting) in schema["properties"].as_object().unwrap() {
        let says = setting.to_string().contains("Can be changed while I/O runs.");
        let is_live = LiveSetting::ALL.iter().any(|live| live.name() == name);
        assert_eq!(says, is_live, "{name}");
    }
    let of_sharer = json!(SharerConfig::schema());
    for live in LiveSetting::ALL {
        assert_eq!(of_sharer["properties"].get(live.name()).is_some(), !live.is_of_paths(), "{live:?}");
    }
}

#[test]
fn the_schema_is_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/config.schema.json");
    let schema = format!("{:#}\n", schema());
    if std::env::var_os("WRITE_REFERENCES").is_some() {
        return std::fs::write(path, schema).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == schema, "{path} is out of date; `make references` writes it");
}

#[test]
fn the_schema_accepts_the_sample_and_refuses_what_the_daemon_refuses() {
    let validator = jsonschema::draft202012::new(&schema()).unwrap();
    let uncommented: String = SAMPLE.lines().map(uncomment).collect();
    for text in [SAMPLE, &uncommented] {
        let errors: Vec<_> =
            validator.iter_errors(&serde_yaml::from_str(text).unwrap()).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        assert!(Config::parse(text).is_ok());
    }
    for (good, bad) in [
        ("queues: 64", "queues: 0"),
        ("weight: 100", "wieght: 100"),
        ("policy: bdp", "policy: best"),
        ("disks:", "disk:"),
    ] {
        let text = SAMPLE.replacen(good, bad, 1);
        assert!(Config::parse(&text).is_err() && !validator.is_valid(&serde_yaml::from_str(&text).unwrap()), "{bad}");
    }
}
