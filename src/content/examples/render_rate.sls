{% set role = grains['roles'][0] %}
{% set conf = {'port': 8080, 'workers': grains['num_cpus'] * 2} %}
service_0:
  name: app0
  port: {{ conf.port + 0 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_1:
  name: app1
  port: {{ conf.port + 1 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_2:
  name: app2
  port: {{ conf.port + 2 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_3:
  name: app3
  port: {{ conf.port + 3 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_4:
  name: app4
  port: {{ conf.port + 4 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_5:
  name: app5
  port: {{ conf.port + 5 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_6:
  name: app6
  port: {{ conf.port + 6 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_7:
  name: app7
  port: {{ conf.port + 7 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_8:
  name: app8
  port: {{ conf.port + 8 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
service_9:
  name: app9
  port: {{ conf.port + 9 }}
  host: {{ grains['id'] }}
  role: {{ role | upper }}
{% if grains['os_family'] == 'Debian' %}
pkg_0: lib0-dev
{% else %}
pkg_0: lib0-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_1: lib1-dev
{% else %}
pkg_1: lib1-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_2: lib2-dev
{% else %}
pkg_2: lib2-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_3: lib3-dev
{% else %}
pkg_3: lib3-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_4: lib4-dev
{% else %}
pkg_4: lib4-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_5: lib5-dev
{% else %}
pkg_5: lib5-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_6: lib6-dev
{% else %}
pkg_6: lib6-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_7: lib7-dev
{% else %}
pkg_7: lib7-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_8: lib8-dev
{% else %}
pkg_8: lib8-devel
{% endif %}
{% if grains['os_family'] == 'Debian' %}
pkg_9: lib9-dev
{% else %}
pkg_9: lib9-devel
{% endif %}
opt_0: {{ salt['grains.get']('nested:level:0', 'default0') }}
opt_1: {{ salt['grains.get']('nested:level:1', 'default1') }}
opt_2: {{ salt['grains.get']('nested:level:2', 'default2') }}
opt_3: {{ salt['grains.get']('nested:level:3', 'default3') }}
opt_4: {{ salt['grains.get']('nested:level:4', 'default4') }}
opt_5: {{ salt['grains.get']('nested:level:5', 'default5') }}
opt_6: {{ salt['grains.get']('nested:level:6', 'default6') }}
opt_7: {{ salt['grains.get']('nested:level:7', 'default7') }}
opt_8: {{ salt['grains.get']('nested:level:8', 'default8') }}
opt_9: {{ salt['grains.get']('nested:level:9', 'default9') }}
list_0:
{% for r in grains['roles'] %}
  - {{ r }}-0
{% endfor %}
list_1:
{% for r in grains['roles'] %}
  - {{ r }}-1
{% endfor %}
list_2:
{% for r in grains['roles'] %}
  - {{ r }}-2
{% endfor %}
list_3:
{% for r in grains['roles'] %}
  - {{ r }}-3
{% endfor %}
list_4:
{% for r in grains['roles'] %}
  - {{ r }}-4
{% endfor %}
map_0:
{% for k, v in conf.items() %}
  {{ k }}: {{ v }}
{% endfor %}
map_1:
{% for k, v in conf.items() %}
  {{ k }}: {{ v }}
{% endfor %}
map_2:
{% for k, v in conf.items() %}
  {{ k }}: {{ v }}
{% endfor %}
map_3:
{% for k, v in conf.items() %}
  {{ k }}: {{ v }}
{% endfor %}
map_4:
{% for k, v in conf.items() %}
  {{ k }}: {{ v }}
{% endfor %}
plain_0: value 0
plain_1: value 1
plain_2: value 2
plain_3: value 3
plain_4: value 4
plain_5: value 5
plain_6: value 6
plain_7: value 7
plain_8: value 8
plain_9: value 9
