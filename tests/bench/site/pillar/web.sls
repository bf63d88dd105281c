balancer:
  weight: {{ grains['num_cpus'] * 10 }}
  sticky: true
certificates:
{%- for name in ['shop', 'api'] %}
  - /etc/ssl/{{ grains['host'] }}/{{ name }}.pem
{%- endfor %}
