{#- 48 keys; `saltern-lab bench` (src/lab/src/bench/pillar.rs) knows what each must be. #}
{% from 'map.jinja' import platform, ports with context %}
{% set cpus = grains['num_cpus'] %}
service: storefront
fleet: {{ salt['pillar.get']('fleet', 'north') }}
node: {{ grains['id'] }}
fqdn: {{ grains['host'] ~ '.' ~ grains['domain'] | lower }}
workers: {{ [cpus * 2, 24] | min }}
heap_mb: {{ (grains['mem_total'] * 0.6) | int }}
tls: {{ grains['role'] == 'web' }}
owner: {{ platform.user | default('nobody') }}
packages: {{ platform.packages | json }}
kernel: "{{ grains['kernelrelease'] | replace('.', '_') }}"
addresses:
{%- for address in grains['ipv4'] if not address.startswith('127.') %}
  - {{ address }}
{%- endfor %}
vhosts:
{%- for name in ['shop', 'api', 'static', 'admin'] %}
  {{ name }}:
    server_name: {{ name }}.{{ grains['domain'] | lower }}
    root: {{ platform.conf }}/{{ name }}
    workers: {{ loop.index * cpus }}
{%- endfor %}
{%- for name, port in ports | dictsort %}
listen_{{ name }}: {{ port + (cpus if grains['role'] == 'web' else 0) }}
{%- endfor %}
{%- for shard in range(16) %}
shard_{{ '%02d' | format(shard) }}: {{ (shard * 37 + cpus) % 101 }}
{%- endfor %}
