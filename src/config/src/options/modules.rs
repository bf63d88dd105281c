//! Options that stock itself declares nowhere: those of its modules, by the module's name
//! (`mysql.host`), and profiles of several such options (`my_vault: {driver: vault, …}`).
//!
//! They are handed to the module with the rest of the configuration when Python runs it, so such a
//! name is not a misspelt one.

use crate::yaml::{Key, Mapping, Node};

/// The modules of the three lines that have options in the master's configuration, sorted.
#[rustfmt::skip]
const MODULES: &[&str] = &[
    "ansible", "appoptics", "appoptics_return", "aws", "aws_kms", "azurearm_blob", "azureblob",
    "azurefs", "boto", "carbon", "carbon_return", "cassandra_cql", "cassandra_cql_return",
    "cheetah", "clustershell", "cmd_json", "cmd_yaml", "cmd_yamlex", "cobbler", "confidant",
    "configparser", "consul", "consul_pillar", "couchbase", "couchbase_return", "couchdb",
    "couchdb_return", "csvpillar", "digicert", "django", "django_orm", "docker_events", "dson",
    "ec2_pillar", "elasticsearch", "elasticsearch_return", "etcd", "etcd_cache", "etcd_db",
    "etcd_pillar", "etcd_return", "ext_nodes", "extra_minion_data_in_pillar", "file_tree",
    "fluent", "fluent_handler", "fluent_mod", "foreman", "genshi", "git_pillar", "gitfs",
    "hg_pillar", "hgfs", "hiera", "highstate_return", "hipchat", "hjson", "http_json",
    "http_logstash", "http_yaml", "influxdb", "influxdb_return", "ircbot", "json5", "junos_syslog",
    "kafka", "kafka_return", "keyring", "keyring_db", "keystone", "keyvalue", "ldap", "librato",
    "librato_return", "libvirt", "libvirt_events", "local_cache", "log4mongo_mod", "logentries",
    "logstash", "logstash_engine", "logstash_mod", "logstash_udp_handler", "logstash_zmq_handler",
    "mako", "makostack", "mattermost", "mattermost_returner", "memcache", "memcache_return",
    "memcached", "minionfs", "mmap_cache", "mmap_key", "mongo", "mongo_future_return",
    "mongo_return", "msgpack", "msteams", "multi_returner", "mysql", "mysql_auth", "mysql_cache",
    "nacl", "nagios_nrdp", "nagios_nrdp_return", "namecheap", "napalm_syslog", "netbox", "neutron",
    "nodegroups", "odbc", "pagerduty", "pam", "pepa", "pgjsonb", "pgjsonb_queue", "pillar_ldap",
    "pki", "plist", "postgres", "postgres_local_cache", "puppet", "pushover", "pushover_returner",
    "pydsl", "pyobjects", "rawfile_json", "reclass", "reclass_adapter", "redis", "redis_cache",
    "redis_return", "redis_sdb", "redis_sentinel", "rediscluster", "redismod", "rethinkdb",
    "rethinkdb_pillar", "s3", "s3fs", "salt_cache", "saltclass", "sentry", "sentry_handler",
    "sentry_mod", "sentry_return", "sharedsecret", "slack", "slack_bolt", "slack_bolt_engine",
    "slack_returner", "slack_webhook", "slack_webhook_return", "sms", "sms_return", "smtp",
    "smtp_return", "splunk", "sql_base", "sqlcipher", "sqlite3", "sqlite3_return", "sqlite_queue",
    "sqs", "sqs_events", "sshconfig", "sshknownhosts", "stalekey", "stateconf", "svn",
    "svn_pillar", "svnfs", "syslog", "syslog_return", "telegram", "telegram_return", "terraform",
    "thorium", "tism", "tomlmod", "varstack", "varstack_pillar", "varstack_top", "vault", "venafi",
    "victorops", "virtkey", "vmware", "vmware_pillar", "webhook", "wempy", "xmpp", "xmpp_return",
    "yamlex", "yubico", "zabbix", "zabbix_return",
];

/// Scheme of values `sdb://NAME`, which another source gives.
const SDB: &str = "sdb";

/// The module that an undeclared option is for; `"sdb"` for a profile of a store of secrets. `None`
/// for a name that no module of stock has.
pub(crate) fn module_of<'a>(name: &'a str, value: &Node) -> Option<&'a str> {
    if let Some(module) = module_of_name(name) {
        return Some(module);
    }
    let map = value.as_map().filter(|map| !map.is_empty())?;
    if map.get("driver").and_then(Node::as_str).is_some() {
        return Some(SDB);
    }
    if is_module(name) {
        return Some(name);
    }
    is_profile(map).then_some(name)
}

/// The module of `module.option`, and of `alternative.module.option`, as returners have it.
fn module_of_name(name: &str) -> Option<&str> {
    let (modules, _option) = name.rsplit_once('.')?;
    modules.split('.').find(|part| is_module(part))
}

/// Whether all options in a mapping are those of modules: a profile that an external pillar names.
fn is_profile(map: &Mapping) -> bool {
    let is_of_module = |key: &Key| {
        key.as_str()
            .is_some_and(|key| module_of_name(key).is_some())
    };
    map.iter().all(|(key, _)| is_of_module(key))
}

fn is_module(name: &str) -> bool {
    MODULES.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::{Limits, parse};

    #[test]
    fn module_options_are_not_reported_as_misspelt() {
        assert!(MODULES.is_sorted());
        let table = [
            ("mysql.host: db", Some("mysql")),
            ("alternative.mysql.host: db", Some("mysql")),
            ("vault: {url: x}", Some("vault")),
            ("keyring: {driver: keyring}", Some("sdb")),
            ("masters: {driver: sqlite3}", Some("sdb")),
            (
                "my_consul: {consul.host: x, consul.port: 1}",
                Some("my_consul"),
            ),
            ("my_consul: {consul.host: x, port: 1}", None),
            ("nosuch.host: db", None),
            ("worker_thread: 3", None),
            ("mysql: 3", None),
            ("site: {a: 1}", None),
        ];
        for (text, expected) in table {
            let node = parse(text, "test", &Limits::DEFAULT).unwrap();
            let (key, entry) = node.as_map().unwrap().iter().next().unwrap();
            let name = key.as_str().unwrap();
            assert_eq!(module_of(name, &entry.value), expected, "{text}");
        }
    }
}
