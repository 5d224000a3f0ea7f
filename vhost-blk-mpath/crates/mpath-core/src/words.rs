//! Enums whose variants are words: in texts, in configuration and in the API.

/// A text that is none of the words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}; give one of: {}", names.join(", "))]
pub struct UnknownWord {
    /// The text.
    pub text: String,
    /// What it is not.
    pub what: &'static str,
    /// The words.
    pub names: &'static [&'static str],
}

/// An enum of named variants. With the feature `api`, configuration and API have its names.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $type:ident as $schema:literal, $what:literal, {$($(#[$of:meta])* $variant:ident = $name:literal,)*}) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type {
            $($(#[$of])* $variant,)*
        }

        impl $type {
            /// Every name.
            pub const NAMES: &[&str] = &[$($name),*];
            /// Every value, in the order of the names.
            pub const ALL: [Self; Self::NAMES.len()] = [$(Self::$variant),*];

            /// The name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownWord> {
                let of_name = Self::ALL.into_iter().find(|value| value.name() == text);
                of_name.ok_or_else(|| $crate::UnknownWord { text: text.into(), what: $what, names: Self::NAMES })
            }
        }

        $crate::words_in_api!($type, $schema);
    };
}

/// Nothing: the feature `api` is off.
#[cfg(not(feature = "api"))]
#[macro_export]
macro_rules! words_in_api {
    ($type:ident, $schema:literal) => {};
}

/// Reads and writes the name, and describes it in the OpenAPI document.
#[cfg(feature = "api")]
#[macro_export]
macro_rules! words_in_api {
    ($type:ident, $schema:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        $crate::json_schema!($type, $schema, serde_json::json!({"type": "string", "enum": $type::NAMES}));
    };
}
