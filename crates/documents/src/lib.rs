//! What an instance says about itself, typed. One definition for those that write and those that read: views, reports,
//! dashboards, checks, the command line. A field that is missing or that cannot be read is `None`: unknown, never 0. It
//! does not take the other fields with it.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a field; one that cannot be read is unknown.
fn lenient<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    // Through a reference, as `object` reads: so the code that reads a document is compiled once.
    Ok(T::deserialize(&Value::deserialize(from)?).ok())
}

/// Reads a document that is a part of another one; what is not such a document is all unknown.
///
/// # Errors
/// Those of the format itself.
pub fn or_unknown<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(object(&Value::deserialize(from)?).unwrap_or_default())
}

/// Reads a document. Only an object is one: serde would take an array for the fields in their order.
fn object<T: serde::de::DeserializeOwned>(document: &Value) -> Option<T> {
    document.is_object().then(|| T::deserialize(document).ok()).flatten()
}

/// Defines a document. An unknown field is written as null; one that only some roles have (`of_a_role`) is omitted.
macro_rules! document {
    (
        $(#[doc = $doc:literal])* $name:ident {
            $($(#[doc = $field_doc:literal])* $field:ident: $kind:ty,)*
        }
        $(of_a_role { $($(#[doc = $role_doc:literal])* $role_field:ident: $role_kind:ty,)* })?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[doc = $field_doc])* #[serde(deserialize_with = "crate::lenient")] pub $field: Option<$kind>,)*
            $($(
                $(#[doc = $role_doc])*
                #[serde(deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
                pub $role_field: Option<$role_kind>,
            )*)?
        }

        impl $name {
            /// Reads a document; what is not a document of this kind is all unknown.
            pub fn of(document: &serde_json::Value) -> $name {
                crate::object(document).unwrap_or_default()
            }
        }
    };
}

pub mod catalog;
pub mod group;
pub mod observer;
pub mod status;
pub mod verification;

pub use catalog::Catalog;
pub use observer::ObserverState;
pub use status::Status;
