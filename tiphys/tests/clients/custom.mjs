// Custom objects by the `@kubernetes/client-node` package: definition, create, patch, status, watch, delete.
import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
const objects = config.makeApiClient(k8s.CustomObjectsApi);
const [group, version, plural, namespace] = ['javascript.example.com', 'v1', 'letters', 'default'];
const at = { group, version, plural, namespace };
const letter = (name, spec) => ({ apiVersion: `${group}/${version}`, kind: 'Letter', metadata: { name }, spec });
const names = (list) => list.items.map((item) => item.metadata.name);

const text = { type: 'string', maxLength: 20 };
// The names of its models differ from those of the API.
const copies = { type: 'integer', _default: 1 };
const spec = {
  type: 'object',
  properties: { text, copies },
  x_kubernetes_validations: [{ rule: 'self.copies < 10', message: 'too many copies' }],
};
const status = { type: 'object', properties: { sent: { type: 'boolean' } } };
await definitions.createCustomResourceDefinition({
  body: {
    metadata: { name: `${plural}.${group}` },
    spec: {
      group,
      scope: 'Namespaced',
      names: { plural, singular: 'letter', kind: 'Letter' },
      versions: [
        {
          name: version,
          served: true,
          storage: true,
          schema: { openAPIV3Schema: { type: 'object', properties: { spec, status } } },
          subresources: { status: {} },
        },
      ],
    },
  },
});
const deadline = Date.now() + 20000;
for (;;) {
  const read = await definitions.readCustomResourceDefinition({ name: `${plural}.${group}` });
  if (read.status?.conditions?.some((one) => one.type === 'Established' && one.status === 'True')) break;
  assert.ok(Date.now() < deadline, 'the definition is not established');
  await new Promise((resolve) => setTimeout(resolve, 20));
}

const created = await objects.createNamespacedCustomObject({ ...at, body: letter('first', { text: 'hello' }) });
assert.equal(created.spec.copies, 1);
const refused = objects.createNamespacedCustomObject({ ...at, body: letter('bad', { copies: 10 }) });
await assert.rejects(refused, (error) => error.code === 422 && error.body.includes('too many copies'));
await assert.rejects(
  objects.createNamespacedCustomObject({ ...at, body: letter('first', {}) }),
  (error) => error.code === 409,
);
const merge = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
await objects.patchNamespacedCustomObject({ ...at, name: 'first', body: { spec: { text: 'changed' } } }, merge);
const sent = { status: { sent: true }, spec: { text: 'ignored' } };
await objects.patchNamespacedCustomObjectStatus({ ...at, name: 'first', body: sent }, merge);
const read = await objects.getNamespacedCustomObject({ ...at, name: 'first' });
assert.deepEqual([read.spec.text, read.status.sent], ['changed', true]);

const list = await objects.listNamespacedCustomObject(at);
assert.deepEqual(names(list), ['first']);
const events = [];
await new Promise((resolve, reject) => {
  const path = `/apis/${group}/${version}/namespaces/${namespace}/${plural}`;
  const options = { resourceVersion: list.metadata.resourceVersion, timeoutSeconds: 20 };
  const onEvent = (type, object) => {
    events.push([type, object.metadata.name]);
    if (type === 'DELETED') resolve();
  };
  new k8s.Watch(config).watch(path, options, onEvent, (error) => (error ? reject(error) : resolve())).catch(reject);
  setTimeout(async () => {
    await objects.createNamespacedCustomObject({ ...at, body: letter('watched', {}) });
    await objects.deleteNamespacedCustomObject({ ...at, name: 'watched' });
  }, 300);
});
assert.deepEqual(events, [['ADDED', 'watched'], ['DELETED', 'watched']]);
await objects.deleteNamespacedCustomObject({ ...at, name: 'first' });
assert.deepEqual(names(await objects.listNamespacedCustomObject(at)), []);
await definitions.deleteCustomResourceDefinition({ name: `${plural}.${group}` });
console.log('all done');
process.exit(0);
