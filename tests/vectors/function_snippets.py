"""Templates that call functions as a pillar on the master has them; `make_functions.py` renders
them with stock. `ROOT` stands for a directory that holds `TREE`."""

MINION = "web1.example.com"
GRAINS = {
    "id": MINION, "os": "Debian", "os_family": "Debian", "kernel": "Linux", "cpuarch": "x86_64",
    "init": "systemd", "osmajorrelease": 12, "host": "web1", "roles": ["web", "db"],
    "ipv4": ["127.0.0.1", "10.0.0.5"], "ipv6": ["::1", "fd00::5"], "fqdn_ip6": [], "num": {"a": 1, 5: "five"},
}
PILLAR = {
    "role": "web", "port": 99, "t": [1, 2, 2], "n": {"a": [{"x": 1}, {"y": 2}], "b": {"c": "d"}},
    "i": {1: "one", True: "yes"}, "tpl": {"k": "v"}, "none": None, "master": {"only_master": 5, "tpl": {"m": 1}},
}
OPTS = {"osenv": {"driver": "env"}, "yml": {"driver": "yaml", "files": ["ROOT/s.yaml", "ROOT/t.yaml", "ROOT/none.yaml"]},
        "rest": {"driver": "rest"}, "mykey": {"deep": [1, 2]}, "uri": "sdb://yml/a:b", "tpl": {"o": 1},
        "nodegroups": {"webs": "web* or L@db1", "deb": "N@webs and G@os:Debian"}}
TREE = {
    "f": "line one\nline two\n# comment x=1\nthree\n", "g.txt": "grün\n", "sub/h.txt": "x", "sub/deep/i.conf": "",
    "s.yaml": "a:\n  b: 5\nl: [1, 2]\nboth: {s: 1}\n", "t.yaml": "both: {t: 2}\nl: [3]\n",
    "files/a.txt": "roses\n", "files/app/defaults.yaml": "port: 80\nname: app\nnest: {a: 1}\n", "files/web/init.sls": "x: 1\n",
    "files/web/nginx.sls": "y: 1\n", "files/top.sls": "base: {}\n", "files/key.pub": "ssh-ed25519 AAAA me@here\n",
}

FILE = [
    "{{ salt['file.read']('ROOT/f') }}", "{{ salt.file.read('ROOT/g.txt') | trim }}", "{{ salt['file.read']('ROOT/none') }}",
    "{% if salt['file.file_exists']('ROOT/f') %}yes{% endif %} {{ salt['file.file_exists']('ROOT') }} {{ salt['file.directory_exists']('ROOT/sub') }}",
    "{{ salt['file.basename']('ROOT/f') }} {{ salt['file.dirname']('/a/b/c.txt') }} {{ salt['file.dirname']('c') }} {{ salt['file.dirname']('/c') }}",
    "{{ salt['file.join']('a', 'b', 'c') }} {{ salt['file.join']('a', '/b') }} {{ salt['file.join']('a/', 'b') }}", "{{ salt['file.join']() }}",
    "{{ salt['file.normpath']('a/../b//c') }} {{ salt['file.pardir']() }}",
    "{{ salt['file.readdir']('ROOT/sub') | sort }}", "{{ salt['file.readdir']('ROOT/f') }}", "{{ salt['file.readdir']('sub') }}",
    "{{ salt['file.find']('ROOT', name='*.txt') }}", "{{ salt['file.find']('ROOT/sub', type='f') }}", "{{ salt['file.find']('ROOT', type='d', maxdepth=1) }}",
    "{{ salt['file.find']('ROOT', maxdepth=0) }}", "{{ salt['file.find']('ROOT/sub', mindepth=1, print='name,type') }}", "{{ salt['file.find']('ROOT', regex='[fg].*') }}",
    "{{ salt['file.find']('ROOT', iname='*.TXT', print='name') }}", "{{ salt['file.find']('ROOT', type='q') }}", "{{ salt['file.find']('ROOT', nosuch='q') }}",
    "{{ salt['file.find']('ROOT/s*', size='+1k') }} {{ salt['file.find']('ROOT/*.txt', size='6b') }}", "{{ salt['file.find']('ROOT', name='') }}",
    "{% set g = salt['file.grep']('ROOT/f', 'line') %}{{ g.retcode }} {{ g.stdout }}", "{{ salt['file.grep']('ROOT/f', 'line', '-v').stdout }}", "{{ salt['file.grep']('ROOT/f', 'a', '-v -i').stdout }}",
    "{{ salt['file.grep']('ROOT/f', 'nope').retcode }}", "{{ salt['file.contains']('ROOT/f', 'two') }} {{ salt['file.contains']('ROOT/f', 'ten') }} {{ salt['file.contains']('ROOT/none', 'two') }}",
    "{{ salt['file.contains_regex']('ROOT/f', '^t.*e') }} {{ salt['file.contains_regex']('ROOT/f', 'x=2') }} {{ salt['file.contains_glob']('ROOT/f', '*two*') }}",
    "{{ salt['file.search']('ROOT/f', '^line two$') }} {{ salt['file.search']('ROOT/f', 'nope') }} {{ salt['file.search']('ROOT/none', 'x', ignore_if_missing=True) }}", "{{ salt['file.search']('ROOT/none', 'x') }}",
    "{{ salt['file.get_hash']('ROOT/f') }} {{ salt['file.get_hash']('ROOT/f', 'md5') }}", "{{ salt['file.get_hash']('ROOT/none') }}", "{{ salt['file.get_hash']('ROOT/f', 'crc') }}",
    "{{ salt['file.get_sum']('ROOT/f', 'sha1') }} {{ salt['file.get_sum']('ROOT/none') }}", "{{ salt['file.check_hash']('ROOT/f', 'md5=aa') }} {{ salt['file.check_hash']('ROOT/f', 'f7b071d87c705c1fd38fd4d3f7ad5fdf') }}", "{{ salt['file.check_hash']('ROOT/f', 'abc') }}",
    "{{ salt['file.stats']('ROOT/f').size }} {{ salt['file.stats']('ROOT/sub')['type'] }} {{ salt['file.stats']('ROOT/f').mode }} {{ salt['file.stats']('ROOT/f').target }}", "{{ salt['file.stats']('ROOT/none') }}",
    "{{ salt['file.stats']('ROOT/f', 'md5').sum }} {{ salt['file.get_mode']('ROOT/f') }} {{ salt['file.lstat']('ROOT/f').st_size }} {{ salt['file.lstat']('ROOT/none') }}",
    "{{ salt['file.is_link']('ROOT/f') }} {{ salt['file.is_chrdev']('/dev/null') }} {{ salt['file.is_fifo']('ROOT/f') }} {{ salt['file.is_blkdev']('ROOT/f') }}", "{{ salt['file.readlink']('ROOT/f') }}",
    "{{ salt['file.user_to_uid']('root') }} {{ salt['file.uid_to_user'](0) }} {{ salt['file.group_to_gid']('root') }} {{ salt['file.gid_to_group'](0) }} {{ salt['file.uid_to_user'](4000000) }}",
    "{{ salt['file.access']('ROOT/f', 'r') }} {{ salt['file.access']('ROOT/f', 'f') }}", "{{ salt['file.access']('ROOT/f', 'z') }}", "{{ salt['file.path_exists_glob']('ROOT/*.txt') }} {{ salt['file.path_exists_glob']('ROOT/*.exe') }}",
    "{{ salt['file.diskusage']('ROOT/sub') }}", "{{ salt['file.seek_read']('ROOT/f', 5, 2) }}", "{{ salt['file.nosuch']('x') }}", "{{ salt.nosuch.x() }}", "{{ salt['nosuch.x']('y') }}",
]
NETWORK = [
    "{{ salt['network.calc_net']('10.0.0.5', '255.255.255.0') }} {{ salt['network.calc_net']('10.0.0.5/24') }} {{ salt['network.calc_net']('fd00::5/64') }}", "{{ salt['network.calc_net']('x') }}",
    "{{ salt['network.convert_cidr']('10.0.0.5/24') }} {{ salt['network.convert_cidr']('fd00::5/64') }}", "{{ salt['network.is_private']('10.0.0.1') }} {{ salt['network.is_private']('8.8.8.8') }} {{ salt['network.is_loopback']('127.0.0.1') }}",
    "{{ salt['network.is_private']('x') }}", "{{ salt['network.reverse_ip']('10.0.0.1') }} {{ salt['network.reverse_ip']('fd00::1') }}", "{{ salt['network.ip_in_subnet']('10.0.0.1', '10.0.0.0/8') }} {{ salt['network.ip_in_subnet']('10.0.0.1', '10.0.0.1/8') }}",
    "{{ salt['network.iphexval']('10.20.30.40') }}", "{{ salt['network.hw_addr']('lo') }} {{ salt['network.interface_ip']('lo') }}", "{{ salt['network.interface']('lo') }}", "{{ salt['network.interfaces']() }}",
    "{{ salt['network.ip_addrs']() }} {{ salt['network.ip_addrs'](include_loopback=True) }} {{ salt['network.ip_addrs']('lo', True) }}", "{{ salt['network.ip_addrs6']() }} {{ salt['network.subnets']() }} {{ salt['network.subnets6']() }}",
    "{{ salt['network.ip_networks']() }} {{ salt['network.ifacestartswith']('127.') }} {{ salt['network.in_subnet']('127.0.0.0/8') }} {{ salt['network.in_subnet']('0.0.0.0/0') }} {{ salt['network.in_subnet']('x') }}",
    "{{ salt['network.get_hostname']() }}", "{{ salt['network.ip_addrs'](cidr='192.0.2.0/24') }} {{ salt['network.ip_addrs'](type='public') }} {{ salt['network.ipaddrs'](type='private') }}", "{{ salt['network.interface_ip']('nosuch0') }}",
]
MATCH = [
    "{{ salt['match.glob']('web*') }} {{ salt['match.glob']('web*', minion_id=grains.id) }} {{ salt['match.glob']('*') }} {{ salt['match.glob']('a*,web*', grains.id) }}",
    "{{ salt['match.list']('web1.example.com,b', grains.id) }} {{ salt['match.list'](['x', 'b']) }} {{ salt['match.pcre']('web\\\\d', grains.id) }} {{ salt['match.pcre']('(', 'm') }}",
    "{{ salt['match.grain']('os:Debian') }} {{ salt['match.grain']('roles:web') }} {{ salt['match.grain']('os|Deb*', '|') }} {{ salt['match.grain']('os') }} {{ salt['match.grain_pcre']('os:De.*n') }}",
    "{{ salt['match.compound']('web* and G@os:Debian', minion_id=grains['id']) }} {{ salt['match.compound']('G@os:Debian and not G@roles:db') }} {{ salt['match.compound']('( web* or G@os:Debian') }}",
    "{{ salt['match.compound']('E@web\\\\d and not L@x', minion_id=grains.id) }} {{ salt['match.compound']('S@10.0.0.0/8') }} {{ salt['match.compound']('Z@x') }} {{ salt['match.compound']('') }} {{ salt['match.compound']('web1 or', grains.id) }}",
    "{{ salt['match.compound']('N@webs', minion_id=grains.id) }} {{ salt['match.compound']('N@deb', minion_id=grains.id) }} {{ salt['match.compound']('N@none') }} {{ salt['match.compound'](['web*', 'or', 'x'], grains.id) }}",
    "{{ salt['match.ipcidr']('10.0.0.0/8') }} {{ salt['match.ipcidr']('10.0.0.5') }} {{ salt['match.ipcidr']('fd00::/8') }} {{ salt['match.ipcidr']('10.1.0.0/16') }}", "{{ salt['match.ipcidr']('x') }}",
    "{{ salt['match.data']('a:b') }}",
    "{{ salt['match.filter_by']({'web*': ['app'], 'db*': ['db'], 'default': 'x'}, minion_id=grains['id']) }} {{ salt['match.filter_by']({'web*': 1, 'default': 3}) }} {{ salt['match.filter_by']({'x': 1}) }}",
    "{{ salt['match.filter_by']({'G@os:Debian': {'a': 1}}, merge={'b': 2}) }} {{ salt['match.filter_by']({'os:Debian': 1}, tgt_type='grain') }}", "{{ salt['match.filter_by']({'x': 1}, tgt_type='nope') }}",
    "{{ salt['match.search_by']({'web': ['G@os:Debian'], 'db': ['nope']}) }} {{ salt['match.search_by']({'x': ['nope']}) }} {{ salt['match.ifelse']('G@os:Debian', 'a', 'b') }}",
]
VALUES = [
    "{{ salt['config.get']('mykey:deep:1') }} {{ salt['config.get']('port') }} {{ salt['config.get']('n:a:0:x') }} {{ salt['config.get']('os') }} {{ salt['config.get']('n|b', delimiter='|') }} {{ salt['config.get']('nope', 'd') }}",
    "{{ salt['config.get']('tpl') }} {{ salt['config.get']('tpl', merge='recurse') }} {{ salt['config.get']('tpl', merge='overwrite') }} {{ salt['config.get']('only_master') }} {{ salt['config.get']('nope', merge='recurse') }}",
    "{{ salt['config.get']('uri') }} {{ salt['config.get']('redis.port') }} {{ salt['config.get']('role', omit_pillar=True) }} {{ salt['config.get']('id') }} {{ salt['config.get']('file_roots:base') }}",
    "{{ salt['config.option']('n') }} {{ salt['config.option']('n:a') }} {{ salt['config.option']('mongo.db') }} {{ salt['config.option']('os', omit_grains=True) }} {{ salt['config.option']('nope') }}", "{{ salt['config.option']('rol?', wildcard=True) }}",
    "{{ salt['config.merge']('tpl') }} {{ salt['config.merge']('nope', 'z') }} {{ salt['config.manage_mode']('644') }} {{ salt['config.manage_mode'](None) }} {{ salt['config.manage_mode'](1777) }}",
    "{{ salt['sdb.get']('sdb://yml/a:b') }} {{ salt['sdb.get']('sdb://yml/l:0') }} {{ salt['sdb.get']('sdb://yml/both') }} {{ salt['sdb.get']('sdb://yml/zz') }} {{ salt['sdb.get']('x') }} {{ salt['sdb.get']('sdb://nope/x') }} {{ salt['sdb.get']('sdb://osenv') }}",
    "{{ salt['sdb.get']('sdb://osenv/SALTERN_NOT_SET') }} {{ salt['sdb.get']('sdb://osenv/HOME') }}", "{{ salt['sdb.get']('sdb://nope/x', strict=True) }}", "{{ salt['sdb.get']('x', True) }}",
    "{{ salt['environ.get']('HOME') }} {{ salt['environ.get']('NOPE') }} {{ salt['environ.get']('NOPE', 'd') }} {{ salt['environ.get'](5) }} {{ salt['environ.has_value']('HOME') }} {{ salt['environ.has_value']('HOME', 'x') }} {{ salt['environ.item'](['HOME', 'NOPE'], 'x') }}",
    "{{ salt['pillar.get']('n:a:x') }} {{ salt['pillar.get']('n:a:5', 'd') }} {{ salt['pillar.get']('i:1') }} {{ salt['pillar.get']('n:a:-1:y') }} {{ salt['pillar.get']('nope') }} {{ salt['pillar.get']('none', 'd') }}",
    "{{ salt['pillar.get']('n:b', {'z': 1}, merge=True) }} {{ salt['pillar.get']('t', [9], merge=True) }} {{ salt['pillar.get']('t', 'x', merge=True) }} {{ salt['pillar.get']('nope', {'z': 1}, merge=True) }} {{ salt['pillar.get']('nope', [3], merge=True) }}",
    "{{ salt['pillar.keys']('n') }} {{ salt['pillar.raw']('role') }} {{ salt['pillar.raw']('nope') }} {{ salt['pillar.item']('role', 'nope', default='q') }} {{ salt['pillar.fetch']('role') }}", "{{ salt['pillar.keys']('nope') }}", "{{ salt['pillar.keys']('t') }}",
    "{{ salt['pillar.filter_by']({'web': 1, 'default': 2}, 'role') }} {{ salt['pillar.filter_by']({'x': 1, 'default': 2}, 'role') }}",
    "{{ salt['grains.get']('roles:0') }} {{ salt['grains.get']('nope', 'x') }} {{ salt['grains.get']('num:a') }} {{ salt['grains.get']('num:5') }} {{ salt['grains.get']('os:x') }} {{ salt['grains.ls']() }}",
    "{{ salt['grains.item']('os', 'nope') }} {{ salt['grains.has_value']('os') }} {{ salt['grains.has_value']('nope') }} {{ salt['grains.has_value']('fqdn_ip6') }} {{ salt['grains.equals']('os', 'Debian') }} {{ salt['grains.equals']('osmajorrelease', '12') }}",
    "{{ salt['grains.filter_by']({'Debian': {'a': 1}, 'default': {'a': 2}}) }} {{ salt['grains.filter_by']({'db': 1, 'web': 2}, grain='roles') }} {{ salt['grains.filter_by']({'Deb*': {'a': {'b': 1}}, 'base': {'a': {'c': 2}}}, base='base', merge={'z': 1}) }}",
    "{{ salt['grains.filter_by']({'RedHat': 1}) }} {{ salt['grains.filter_by']({'RedHat': 1, 'def': 2}, default='def') }} {{ salt['grains.filter_by']({'12': 'twelve'}, 'osmajorrelease') }} {{ salt['grains.filter_by']({12: 'twelve'}, 'osmajorrelease') }}", "{{ salt['grains.filter_by']({'Debian': 5}, merge={'a': 1}) }}",
    "{{ salt['match.ifelse']('nope*', 'a', 'G@os:Debian', 'b', 'c') }} {{ salt['match.ifelse'](False, 'a', 'nope*', 'b', 'c') }} {{ salt['match.ifelse'](True, {'x': 1}, 'c', merge={'y': 2}) }} {{ salt['match.ifelse']('only') }} {{ salt['match.ifelse']('web*', 'a', 'b', minion_id=grains.id) }}",
    "{{ salt['match.ifelse']('a', 'b') }}", "{{ salt['match.ifelse']() }}", "{{ salt['match.ifelse']('os:Debian', 1, 2, tgt_type='grain') }} {{ salt['match.ifelse']('a*', 1, 'a*', 2, 3, minion_id='ab') }}",
    "{{ salt['grains.get'](['num', 'a']) }} {{ salt['pillar.get'](['n', 'a', 0, 'x']) }} {{ salt['pillar.get'](['i', 1]) }} {{ salt['grains.get'](['num', 5]) }} {{ salt['config.get'](['n', 'b']) }} {{ salt['pillar.keys'](['n']) }}",
    "{{ salt['grains.item']('os', 'id', sanitize=True) }} {{ salt['grains.items'](sanitize=True)['host'] }} {{ salt['grains.item']('id', sanitize='no') }} {{ salt['pillar.ls']('role') }} {{ salt['pillar.raw']('role') }}",
    # What Python takes as false merges nothing, and is no flag.
    *["{{ salt['grains.filter_by']({'Debian': {'a': 1}}, merge=%s) }} {{ salt['pillar.filter_by']({'web': {'a': 1}}, 'role', merge=%s) }}" % (no, no) for no in ("''", "[]", "0", "False", "None", "{}", "salt['pillar.get']('x:lookup')")],
    *["{{ salt['match.filter_by']({'G@os:Debian': {'a': 1}}, merge=%s) }} {{ salt['grains.filter_by']({'Debian': {'a': 1}}, base=%s) }}" % (no, no) for no in ("''", "[]", "0", "False", "None", "{}")],
    "{{ salt['grains.filter_by']({'Debian': {'a': 1}}, merge='x') }}", "{{ salt['match.filter_by']({'G@os:Debian': {'a': 1}}, merge=[1]) }}", "{{ salt['match.filter_by']({'G@os:Debian': [1]}, merge={'a': 1}) }}",
    "{{ salt['grains.filter_by']({'x': 1, '': 2}, default='') }} {{ salt['grains.filter_by']({'x': 1, 5: 2}, default=5) }} {{ salt['grains.filter_by']({'x': 1, none: 2}, default=none) }} {{ salt['grains.filter_by']({'Deb*': None, 'Debian': 1, 'default': 7}) }}",
    "{{ salt['grains.filter_by']({'Debian': {'a': 1}, 5: {'b': 2}}, base=5) }} {{ salt['grains.filter_by']({\"{'a': 1, 5: 'five'}\": 3}, 'num') }} {{ salt['match.filter_by']({'x': 1, 5: 2}, default=5) }}",
    "{{ salt['slsutil.merge']({'l': [1]}, {'l': [2]}, merge_lists='yes') }} {{ salt['slsutil.merge']({'l': [1]}, {'l': [2]}, merge_lists='') }} {{ salt['pillar.get']('n:b', {'z': 1}, merge='') }} {{ salt['pillar.get']('n:b', {'z': 1}, merge=1) }} {{ salt['pillar.get']('n:b', {'z': 1}, merge='x') }}",
    "{% set d = {'l': [1]} %}{{ salt['defaults.merge'](d, {'l': [2]}, merge_lists='x', in_place=[]) }} {{ d }} {{ salt['defaults.merge'](d, none, convert_none='y') }}",
    "{{ salt['slsutil.merge']({'a': {'b': 1}, 'l': [1]}, {'a': {'c': 2}, 'l': [2]}) }} {{ salt['slsutil.merge']({'l': [1]}, {'l': [1, 2]}, merge_lists=True) }} {{ salt['slsutil.merge']({'a': {'x': 1}}, {'a': {'y': 1}}, 'overwrite') }}",
    "{{ salt['slsutil.merge']({'a': 1, 'b': 2}, {'a': 2}, strategy='list') }} {{ salt['slsutil.merge']({'a': 1}, {'b': 2}, 'none') }} {{ salt['slsutil.merge_all']([{'a': 1}, {'a': 2, 'b': 3}, {'c': {'d': 1}}]) }}", "{{ salt['slsutil.merge']([1], [2]) }}",
    "{% set a = {'x': {'y': 1}} %}{% do salt['slsutil.update'](a, {'x': {'z': 2}}) %}{{ a }}", "{% set a = {'x': {'y': 1}} %}{% set b = salt['defaults.merge'](a, {'x': {'z': 2}}) %}{{ a }} {{ b }}", "{% set a = {'x': {'y': [1]}} %}{% do salt.slsutil.update(dest=a, upd={'x': {'y': [2]}}, merge_lists=True) %}{{ a }}",
    "{% set a = {'l': [1]} %}{{ salt['defaults.merge'](a, {'l': [2]}, merge_lists=True) }} {{ salt['defaults.merge'](a, None) }} {{ salt['defaults.deepcopy'](a) }}", "{% set n = {'one': {'x': 1}, 'two': None} %}{% do salt['defaults.update'](n, {'x': 5, 'b': [1]}) %}{{ n }}",
    "{{ salt['defaults.get']('app:port') }} {{ salt['defaults.get']('app:nest:a') }} {{ salt['defaults.get']('app') }} {{ salt['defaults.get']('app:none', 'd') }}",
    "{{ salt['slsutil.boolstr'](True, 'on', 'off') }} {{ salt['slsutil.boolstr']('') }} {{ salt['slsutil.boolstr']('no') }} {{ salt['slsutil.boolstr'](0, true='1', false='0') }}",
    "{{ salt['slsutil.serialize']('json', {'a': [1, None, 'ü']}) }} {{ salt['slsutil.deserialize']('json', '{\"a\": 1}') }} {{ salt['slsutil.deserialize']('yaml', 'a: [1, yes]') }}", "{{ salt['slsutil.serialize']('yaml', {'a': [1], 'b': {'c': {'d': 'e'}}, 'f': 'g'}) }}", "{{ salt['slsutil.serialize']('nope', 1) }}",
    "{{ salt['slsutil.path_exists']('web/init.sls') }} {{ salt['slsutil.file_exists']('web') }} {{ salt['slsutil.dir_exists']('web') }} {{ salt['slsutil.file_exists']('none') }}",
    "{{ salt['hashutil.digest']('a') }} {{ salt['hashutil.sha256_digest']('a') }} {{ salt['hashutil.base64_b64encode']('grün') }} {{ salt['hashutil.base64_b64decode']('Z3LDvG4=') }} {{ salt['hashutil.md5_digest']('x') }}", "{{ salt['hashutil.digest']('a', 'sha1') }}",
    "{{ salt['hashutil.base64_encodestring']('a' * 70) }}|{{ salt['hashutil.base64_decodestring']('YQ==') }}|{{ salt['hashutil.base64_b64decode']('//4=') }}", "{{ salt['hashutil.hmac_compute']('a', 'b') }} {{ salt['hashutil.hmac_signature']('a', 'b', 'c') }} {{ salt['hashutil.digest_file']('ROOT/f') }} {{ salt['hashutil.base64_encodefile']('ROOT/f') }}",
    "{{ salt['hashutil.digest_file']('ROOT/none') }}", "{{ salt['random.seed'](60) }} {{ salt['random.seed'](1440, 'web1') }} {{ salt['random.seed'](7, hash=5) }} {{ salt['random.rand_int'](1, 1000, seed='x') }} {{ salt['random.rand_int'](1, 1000, 42) }}",
    "{{ salt['random.sample'](['a', 'b', 'c', 'd'], 2, seed='x') }} {{ salt['random.shuffle']([1, 2, 3, 4, 5], seed=grains.id) }} {{ [1, 2, 3, 4, 5] | random_shuffle(seed='web1') }} {{ range(40) | list | random_sample(3, seed='q') }}",
    "{{ salt['random.hash']('a', 'md5') }} {{ salt['random.hash']('a') }} {{ salt['random.str_encode']('a') }} {{ salt['random.rand_int'](5, 5) }} {{ salt['random.get_str'](6, chars='z') }} {{ salt['random.get_str'](12) | length }}", "{{ salt['random.hash']('a', 'crc') }}", "{{ salt['random.sample']([1], 2) }}",
    "{{ salt['test.echo']('x') }} {{ salt['test.ping']() }} {{ salt['test.true']() }} {{ salt['test.false']() }} {{ salt['test.kwarg'](a=1) }}", "{{ salt['test.echo']() }}",
]
SITE = [
    "{{ salt['cp.get_file_str']('salt://a.txt') }} {{ salt['cp.get_file_str']('salt://key.pub') | trim }} {{ salt['cp.get_file_str']('salt://none') }}", "{{ salt['cp.get_url']('salt://a.txt', None) }}", "{{ salt['cp.hash_file']('salt://a.txt') }} {{ salt['cp.hash_file']('salt://none') }}",
    "{{ salt['cp.list_master']() }} {{ salt['cp.list_master'](prefix='web') }} {{ salt['cp.list_master_dirs']() }} {{ salt['cp.list_states']() }} {{ salt['cp.envs']() }} {{ salt['cp.list_master_symlinks']() }}", "{{ salt['cp.stat_file']('salt://a.txt') }} {{ salt['cp.stat_file']('salt://a.txt', octal=False) }}",
    "{{ salt['mine.get']('*', 'network.ip_addrs') }} {{ salt.mine.get('web1*', 'x', tgt_type='glob') }}",
    "{% for server, addrs in salt['mine.get']('roles:web', 'network.ip_addrs', tgt_type='grain').items() %}{{ server }}{% else %}none{% endfor %}",
]
CMD = [
    "{{ salt['cmd.run']('echo a | tr a b') }}", "{{ salt['cmd.run']('echo a | tr a b', python_shell=True) }}", "{{ salt['cmd.shell']('echo $((1 + 2))') }}", "{{ salt['cmd.run'](\"echo 'a  b' c\") }}", "{{ salt['cmd.run'](['echo', 'a b']) }}",
    "{{ salt['cmd.run_stdout']('echo x') }}{{ salt['cmd.run_stderr']('echo b >&2', python_shell=True) }}{{ salt['cmd.retcode']('false') }}", "{{ salt['cmd.run_all']('ls /nonexistent_x').retcode }} {{ salt['cmd.run_all']('echo a').stdout }}",
    "{{ salt['cmd.run']('echo $X $LC_TIME', env={'X': 1}, python_shell=True) }} {{ salt['cmd.run']('echo $Y', env=[{'Y': 'z'}], python_shell=True) }} {{ salt['cmd.run']('cat', stdin='x') }} {{ salt['cmd.run']('pwd', cwd='/') }}",
    "{{ salt['cmd.run']('nosuchprogram x') }}", "{{ salt['cmd.run']('false', raise_err=True) }}", "{{ salt['cmd.has_exec']('sh') }} {{ salt['cmd.which']('nosuchprogram') }} {{ salt['cmd.has_exec']('nosuchprogram') }}", "{{ salt['cmd.run']('exit 2') }}", "{{ salt['cmd.run'](\"echo 'a\") }}", "{{ salt['cmd.shell']('echo a; echo b >&2') }}", "{{ salt['cmd.run']('printf \"a\\\\n\\\\n\"') }}|",
    "{{ salt['cmd.shell'](\"printf 'a b\\\\n'\", rstrip=False) }}|{{ salt['cmd.run']('echo a', hide_output=True) }}|",
]
FILTERS = [
    "{{ {'root': {'a': 1, 'b': {'c': 'x & <y>'}, 'l': [{'n': 1}, {'n': 2}]}} | xml }}", "{{ {'r': 'text'} | xml }}", "{{ {'r': {'p': ['a', 'b']}} | xml }}", "{{ {'r': {'p': ['aa', 'bb'], 'q': {}}} | xml }}", "{{ 5 | xml }}",
    "<a{{ {'href': '/x?a=1&b', 'id': none, 'n': 5} | xmlattr }}>{{ {} | xmlattr }}{{ {'a': 1} | xmlattr(false) }}", "{{ {'a b': 1} | xmlattr }}",
    "{{ 'see http://example.com/a?b=c, (www.example.org) and <me@example.com>.' | urlize }}", "{{ 'https://example.com/very/long/path example.net' | urlize(12, true, target='_blank') }}", "{{ 'mailto:me@example.com tel:123 (http://example.com/a_(b))' | urlize(extra_schemes=['tel:']) }}",
    "{{ 'ROOT/f' | file_hashsum }} {{ 'ROOT/f' | file_hashsum('md5') }}", "{{ 'ROOT/none' | file_hashsum }}", "{{ 'ROOT/f' | is_text_file }} {{ 'ROOT/f' | is_bin_file }} {{ '/bin/sh' | is_text_file }} {{ '/bin/sh' | is_bin_file }} {{ 'ROOT/none' | is_text_file }}",
    "{{ 'ROOT/sub/deep/i.conf' | is_empty }} {{ 'ROOT/f' | is_empty }} {{ 'ROOT/none' | is_empty }}", "{{ 'ROOT/sub' | list_files | sort }}", "{{ 'sh' | which }} {{ 'nosuchprogram' | which }} {{ '/bin/sh' | which }}", "{{ 'root' | get_uid }} {{ 'nosuchuser' | get_uid }}",
    "{{ ['+---+---+', '| id | name |', '| 1 | a |', '| 2 | b |', ''] | mysql_to_dict('id') }}", "{{ ('AC:DE:48' | gen_mac) | length }}",
]
SNIPPETS = [*FILE, *FILTERS, *NETWORK, *MATCH, *VALUES, *SITE, *CMD]
