//! Decides: a key stands in place of the path of a key file.
//!
//! The file of a secret key.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use mpath_core::json_schema;
use serde_json::json;

use crate::text::text_serde;

/// The path of a file with a secret key: 1 to 4095 bytes. Keys are in files, because others can read command lines and the API.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyFile(String);

impl KeyFile {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no [`KeyFile`]. The text is not shown, because it may be the key itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// The text is a key.
    #[error("this is a key, not a file; write the key to a file that only the daemon can read, and give its path")]
    Key,
    /// The text is no path.
    #[error("no file path; give 1 to 4095 bytes, such as /etc/vhost-blk-mpath/disk0.key")]
    Path,
}

impl FromStr for KeyFile {
    type Err = KeyFileError;

    fn from_str(text: &str) -> Result<Self, KeyFileError> {
        if looks_like_key(text) {
            return Err(KeyFileError::Key);
        }
        if (1..=4095).contains(&text.len()) && !text.contains(char::is_control) && !text.ends_with('/') {
            Ok(Self(text.into()))
        } else {
            Err(KeyFileError::Path)
        }
    }
}

/// Whether a text may contain a key. Such a text must not be repeated in errors.
pub(crate) fn looks_like_key(text: &str) -> bool {
    ["NVMeTLSkey-", "DHHC-"].iter().any(|prefix| text.contains(prefix))
}

text_serde!(KeyFile, "the path of a file with a key");
json_schema!(
    KeyFile,
    "KeyFile",
    json!({
        "type": "string",
        "description": "The path of a file with a secret key, at most 4095 bytes. Not the key itself.",
        "minLength": 1,
        "maxLength": 4095,
        "pattern": r"^[^\x00-\x1f\x7f-\x9f]*[^/\x00-\x1f\x7f-\x9f]$",
        "examples": ["/etc/vhost-blk-mpath/disk0.key"],
    })
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_place_of_a_file_is_not_repeated() {
        for key in ["NVMeTLSkey-1:01:secret:", " NVMeTLSkey-1:01:secret:", "'NVMeTLSkey-2:secret'", "DHHC-1:00:secret:"]
        {
            let error = key.parse::<KeyFile>().unwrap_err();
            assert_eq!(error, KeyFileError::Key);
            assert!(!error.to_string().contains("secret"));
        }
        for text in ["", "/etc/keys/", "a\nb"] {
            assert_eq!(text.parse::<KeyFile>().unwrap_err(), KeyFileError::Path);
        }
        assert_eq!("disk0.key".parse::<KeyFile>().unwrap().to_string(), "disk0.key");
    }
}
