//! The settings of the initial state: an administrator, and a file with the rest.
//!
//! Rows of the table in `table`; the `init` module of the server describes their effect.

use super::form::{SettingValue, ValueForm, path_value};
use super::setting::Setting;

const DATA: &str = "Data";

pub(super) const INIT: Setting = Setting {
    name: "init",
    heading: DATA,
    value_name: "FILE",
    help: "TOML file with users, buckets, collections and documents that are there before the server is ready; \
           applied at each start, and changes nothing that is so already",
    form: ValueForm::Text,
    get: |s| s.init.as_deref().map(path_value),
    set: |s, value| s.init = Some(value.path()),
};

pub(super) const ADMIN_USER: Setting = Setting {
    name: "admin_user",
    heading: DATA,
    value_name: "NAME",
    help: "Administrator that is there from the start, with the password in the environment variable \
           ORIBI_ADMIN_PASSWORD; Administrator when only the password is given",
    form: ValueForm::Text,
    get: |s| s.admin_user.clone().map(SettingValue::Text),
    set: |s, value| s.admin_user = Some(value.text()),
};

pub(super) const ADMIN_PASSWORD_FILE: Setting = Setting {
    name: "admin_password_file",
    heading: DATA,
    value_name: "FILE",
    help: "File with that administrator's password, instead of ORIBI_ADMIN_PASSWORD",
    form: ValueForm::Text,
    get: |s| s.admin_password_file.as_deref().map(path_value),
    set: |s, value| s.admin_password_file = Some(value.path()),
};
