package wire

// Inventory is what the runtime has, as the messages of one agent amount to. It
// never changes; whoever holds it may keep it.
type Inventory struct {
	Runtime
	Sandboxes  []Sandbox        // in the order of namespace, name, uid and attempt
	Containers []ContainerLayer // in the order of sandbox, name and attempt
	Images     []Image          // in the order of ids
}

// ContainerLayer is a container and its writable layer as last measured.
type ContainerLayer struct {
	Container
	Layer Layer
}

// ImageUsers are the ids of the sandboxes and containers, dead ones too, that
// use each image, by its id.
func (i *Inventory) ImageUsers() map[string][]string {
	users := map[string][]string{}
	use := func(image, user string) {
		if image != "" {
			users[image] = append(users[image], user)
		}
	}
	for s := range i.Sandboxes {
		use(i.Sandboxes[s].Image, i.Sandboxes[s].ID)
	}
	for c := range i.Containers {
		container := &i.Containers[c].Container
		use(container.Image, container.ID)
		for _, volume := range container.ImageVolumes {
			use(volume, container.ID)
		}
	}
	return users
}
