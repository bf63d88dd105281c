//! Synthetic minions of the load: web servers, databases and the like, with the grains that a stock
//! minion on such a machine collects. Everything follows from a minion's number, so that the
//! expected answer to a target can be computed.

use saltern_wire::msgpack::Value;

/// How many minions stand in a rack, ten of each role.
pub(crate) const IN_RACK: usize = 40;

const ROLES: [&str; 4] = ["web", "db", "app", "cache"];

/// Name, family, release and code name.
const SYSTEMS: [[&str; 4]; 3] = [
    ["Debian", "Debian", "12", "bookworm"],
    ["Ubuntu", "Debian", "24.04", "noble"],
    ["Rocky", "RedHat", "9.4", "Blue Onyx"],
];

/// The machine with this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server(pub(crate) usize);

impl Server {
    pub(crate) fn role(self) -> &'static str {
        ROLES.get(self.0 % 4).copied().unwrap_or("web")
    }

    fn system(self) -> [&'static str; 4] {
        SYSTEMS.get(self.0 % 3).copied().unwrap_or_default()
    }

    /// `Debian`, `Ubuntu` or `Rocky`.
    pub(crate) fn os(self) -> &'static str {
        self.system()[0]
    }

    pub(crate) fn os_family(self) -> &'static str {
        self.system()[1]
    }

    pub(crate) fn rack(self) -> usize {
        self.0 / IN_RACK
    }

    pub(crate) fn cpus(self) -> i64 {
        2 << (self.0 / 12 % 4)
    }

    /// Megabytes.
    pub(crate) fn memory(self) -> i64 {
        self.cpus() * 3_931
    }

    pub(crate) fn host(self) -> String {
        format!("{}-{:06}", self.role(), self.0)
    }

    /// A private address, the next one for the next number.
    pub(crate) fn address(self) -> String {
        let number = self.0;
        let bytes = [number >> 16 & 255, number >> 8 & 255, number & 255];
        format!("10.{}.{}.{}", bytes[0], bytes[1], bytes[2])
    }

    /// As a stock minion with this id would send them.
    pub(crate) fn grains(self, id: &str) -> Value {
        let [os, family, release, code_name] = self.system();
        let host = self.host();
        let fqdn = format!("{host}.{DOMAIN}");
        let address = self.address();
        let texts = [
            ("id", id),
            ("host", &host),
            ("nodename", &host),
            ("localhost", &host),
            ("domain", DOMAIN),
            ("fqdn", &fqdn),
            ("os", os),
            ("osfullname", os),
            ("os_family", family),
            ("osrelease", release),
            ("oscodename", code_name),
            ("kernel", "Linux"),
            ("kernelrelease", KERNEL),
            ("kernelversion", "#1 SMP PREEMPT_DYNAMIC"),
            ("init", "systemd"),
            ("cpuarch", "x86_64"),
            ("osarch", "amd64"),
            ("cpu_model", "AMD EPYC 9354P 32-Core Processor"),
            ("virtual", "kvm"),
            ("biosvendor", "SeaBIOS"),
            ("manufacturer", "QEMU"),
            ("productname", "Standard PC (Q35 + ICH9, 2009)"),
            ("shell", "/bin/bash"),
            ("path", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"),
            ("pythonexecutable", "/opt/saltstack/salt/bin/python3.11"),
            (
                "saltpath",
                "/opt/saltstack/salt/lib/python3.11/site-packages/salt",
            ),
            ("saltversion", "3008.3"),
            ("timezone", "UTC"),
            ("username", "root"),
            ("groupname", "root"),
            ("ip4_gw", "10.0.0.1"),
            ("role", self.role()),
        ];
        let mut grains: Vec<(Value, Value)> = texts
            .iter()
            .map(|(name, text)| (Value::from(*name), Value::from(*text)))
            .collect();
        let numbers = [
            ("num_cpus", self.cpus()),
            ("mem_total", self.memory()),
            ("swap_total", 2_047),
            ("uid", 0),
            ("gid", 0),
            ("pid", 700 + self.0 as i64 % 3_000),
        ];
        grains.extend(numbers.map(|(name, number)| (name.into(), number.into())));
        grains.extend([
            ("rack".into(), Value::from(rack_name(self.rack()))),
            ("machine_id".into(), format!("{:032x}", self.0).into()),
            ("ipv4".into(), list(&["127.0.0.1", &address])),
            ("ipv6".into(), list(&["::1"])),
            ("fqdn_ip4".into(), list(&[&address])),
            ("cpu_flags".into(), list(&CPU_FLAGS)),
            ("disks".into(), list(&["vda", "vdb"])),
            ("ssds".into(), list(&["vda"])),
            (
                "saltversioninfo".into(),
                vec![3_008.into(), 3.into()].into(),
            ),
            (
                "locale_info".into(),
                Value::map([("defaultlanguage", "C"), ("timezone", "UTC")]),
            ),
            (
                "ip_interfaces".into(),
                Value::map([("lo", list(&["127.0.0.1"])), ("eth0", list(&[&address]))]),
            ),
            (
                "hwaddr_interfaces".into(),
                Value::map([("eth0", format!("52:54:00:{:06x}", self.0 & 0xff_ffff))]),
            ),
        ]);
        Value::Map(grains)
    }
}

/// With a capital, so that a template has something to do.
pub(crate) const DOMAIN: &str = "Example.com";
pub(crate) const KERNEL: &str = "6.1.0-28-amd64";

const CPU_FLAGS: [&str; 24] = [
    "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "sep", "mtrr", "pge",
    "mca", "cmov", "pat", "pse36", "clflush", "mmx", "fxsr", "sse", "sse2", "aes", "avx2",
];

/// The grain `rack` of the minions in this rack.
pub(crate) fn rack_name(rack: usize) -> String {
    format!("rack-{rack:05}")
}

pub(crate) fn list(texts: &[&str]) -> Value {
    let texts: Vec<Value> = texts.iter().map(|text| Value::from(*text)).collect();
    texts.into()
}
